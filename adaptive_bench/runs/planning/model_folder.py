"""A model folder in Hugging Face layout: which files belong to it, and whether their tensors are those of its config.

One check says whether a model can be loaded: the names and shapes in the heads of its weight files, as transformers
takes them. No values are read.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, message_of, one_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# What decides how a model computes and reads text; a README beside it does not.
_FILES = ("*.safetensors", "*.json", "*.model", "*.txt", "*.jinja")
AGAIN = "Copy or save the model again; after a clone with Git LFS call `git lfs pull` in its folder."


def files_of(folder: Path) -> list[Path]:
    """The files that a model is made of."""
    return [file for pattern in _FILES for file in folder.glob(pattern) if file.is_file()]


def check_folder(folder: Path) -> None:
    """Refuse a folder of something else than a model that can be measured.

    Raises:
        EnvironmentProblem: With what it is.
    """
    if not (folder / "config.json").is_file():
        raise EnvironmentProblem(
            f"A model folder holds config.json, *.safetensors and a tokenizer, but there is no config.json in "
            f"{str(folder)!r}. {_instead_of(folder)}"
        )
    check_config(folder / "config.json", str(folder))
    if (folder / "adapter_config.json").is_file():  # transformers would freeze the model and load adapters onto it
        raise EnvironmentProblem(
            f"A model folder holds a whole model, but adapter_config.json in {str(folder)!r} says that this is an "
            f"adapter of one. Remove that file where the adapter is merged into the weights, or merge it first and "
            f"name the merged model."
        )


def _instead_of(folder: Path) -> str:
    """What to name in place of a folder that has no config.json."""
    if (folder / "adaptive.json").is_file():
        return "It is a saved adaptive model; a run puts methods on a plain one: name the one that it was trained from."
    # What transformers.Trainer writes, and the cache of the hub, whose folder lies above those of its models.
    places = (place for pattern in ("*", "snapshots/*", "models--*/snapshots/*") for place in folder.glob(pattern))
    models = [place for place in places if (place / "config.json").is_file() and any(place.glob("*.safetensors"))]
    if not models:
        return "Name another folder."
    others = f", the newest of {len(models)} below it" if len(models) > 1 else ""
    return f"Name {str(max(models, key=_age))!r}{others}."


def _age(model: Path) -> tuple[int, float]:
    """Larger is newer: by the number of a Trainer's checkpoint, which a copy keeps, else by the time of the folder."""
    step = model.name.removeprefix("checkpoint-")
    return int(step) if step.isdecimal() else -1, model.stat().st_mtime


def check_config(file: Path, model: str) -> None:
    """Refuse a config.json of what cannot be measured.

    Args:
        model: Whose it is, as the user knows it.

    Raises:
        EnvironmentProblem: It cannot be read, or describes no model that a run takes.
    """
    try:
        config = dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise EnvironmentProblem(
            f"The file {str(file)!r} must describe a model in JSON, but cannot be read: {message_of(error)}. {AGAIN}"
        ) from error
    family, known = config.get("model_type"), registry.names("families")
    if family not in known:
        raise EnvironmentProblem(
            f"A model is of one of the families {', '.join(known)}, but {str(file)!r} says model_type {family!r}. "
            f"Name another model, or register the family (see docs/models.md)."
        )
    # Beside plain weights too: by the entry alone transformers builds quantized maps, which cannot be trained.
    if (quantized := config.get("quantization_config")) is not None:
        raise EnvironmentProblem(
            f"A backbone has unquantized weights, but the config.json of {model!r} has a quantization_config "
            f"({one_line(str(quantized), 100)}). Dequantize the model and save it again, or remove that entry if its "
            f"weights are plain; `--quantize` evaluates a plain model with quantized weights."
        )


def check_heads(name: str, folder: Path, empty: PreTrainedModel) -> list[str]:
    """Compare names and shapes in the heads of a folder's weight files with the model.

    Args:
        name: The model's, as the user wrote it.
        empty: The model that config.json describes, without values.

    Returns:
        Names of tensors that it leaves aside, see `check_loaded`.

    Raises:
        EnvironmentProblem: See `check_loaded`; or the weights cannot be read.
    """
    given: dict[str, list[int]] = {}
    try:
        for file in _loaded_files(folder, getattr(empty.config, "transformers_weights", None)):
            with safe_open(file, "pt") as tensors:
                given |= {key: tensors.get_slice(key).get_shape() for key in tensors.keys()}  # noqa: SIM118 - no mapping
    except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise EnvironmentProblem(
            f"The weights of a model are in model.safetensors, or in the files that model.safetensors.index.json "
            f"lists, but in {str(folder)!r} they cannot be read: {type(error).__name__}: {message_of(error)}. {AGAIN} "
            f"Weights in another format are converted by save_pretrained."
        ) from error
    # transformers decides what fits: it knows of tied weights, of names that earlier versions wrote, and of
    # checkpoints without the prefix of the decoder.
    loader: Any = type(empty)
    _, found = loader.from_pretrained(
        None,
        config=copy.deepcopy(empty.config),
        state_dict={key: torch.empty(shape, device="meta") for key, shape in given.items()},
        dtype=torch.float32,
        device_map="meta",
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    return check_loaded(name, empty, found)


def _loaded_files(folder: Path, named: str | None) -> list[Path]:
    """The weight files that transformers reads of a folder: it may hold others, in another layout.

    Args:
        named: The file that config.json names (`transformers_weights`), if it does.
    """
    single, index = (folder / (named or file) for file in ("model.safetensors", "model.safetensors.index.json"))
    if index.is_file() and not (single.is_file() and single.suffix == ".safetensors"):
        return sorted({folder / file for file in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    return [single]


def check_loaded(name: str, model: PreTrainedModel, found: Mapping[str, Any]) -> list[str]:
    """Refuse a model whose files hold other tensors than it has.

    Args:
        name: The model's, as the user wrote it.
        found: What transformers says of loading it.

    Returns:
        Names of tensors that stand beside the decoder and its head: those of a classifier (`score`), a value head or an
        image tower. A language model of text computes the same without them.

    Raises:
        EnvironmentProblem: Tensors are missing, have other shapes, or are parts of the decoder that it does not have.
    """
    missing, unused = sorted(found["missing_keys"]), sorted(found["unexpected_keys"])
    if missing:
        others = f", and have {len(unused)} others (the first: {one_line(unused[0], 200)})" if unused else ""
        raise EnvironmentProblem(
            f"The weights of a model have every tensor that its config.json asks for, but those of {name!r} "
            f"lack {len(missing)} (the first: {missing[0]}){others}. Correct config.json, or copy or save the model "
            f"again."
        )
    for tensor, got, asked in sorted(found["mismatched_keys"]):
        raise EnvironmentProblem(
            f"The weights of a model have the shapes that its config.json asks for, but {tensor} of {name!r} has "
            f"{list(got)} in place of {list(asked)}. Correct config.json, or copy or save the model again."
        )
    decoder = getattr(model, model.base_model_prefix, model)
    # A checkpoint of the decoder alone has its names without the prefix.
    parts = {part for module in (model, decoder) for part, _ in module.named_children()}
    # With them the model computes something else: layers that config.json cuts off, biases that it denies, norms of
    # another family, adapters that nobody merged.
    if inside := [key for key in unused if key.partition(".")[0] in parts]:
        raise EnvironmentProblem(
            f"The weights of a decoder are all used, but a {type(model).__name__} with the config.json of {name!r} "
            f"({model.config.num_hidden_layers} layers) has no place for {len(inside)} of them (the first: "
            f"{one_line(inside[0], 200)}). Correct config.json, merge adapters into the weights, or save the model "
            f"again without what does not belong to it."
        )
    return unused
