"""Checks the files of a model: a folder in Hugging Face layout, or one GGUF file, which is read into plain fp32."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, message_of, one_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel


# Files that decide how a model computes and reads text; others, such as a README, are not part of its fingerprint.
_FILES = ("*.safetensors", "*.json", "*.model", "*.txt", "*.jinja")
AGAIN = "Copy or save the model again; after a clone with Git LFS call `git lfs pull` in its folder."
SUFFIX = ".gguf"
# GGUF settings that change what a model computes but that transformers ignores, except for the listed architectures.
_SETTINGS = {
    "rope.scaling.type": (),
    "attention.scale": (),
    "attention.sliding_window": ("gemma2", "gemma3"),
}
_TENSORS = ("rope_freqs.", "rope_factors_")


def files_of(folder: Path) -> list[Path]:
    """The files in a model's folder that its fingerprint covers."""
    return [file for pattern in _FILES for file in folder.glob(pattern) if file.is_file()]


def check_folder(folder: Path) -> None:
    """Refuse a folder that does not hold a model a run can measure."""
    if not (folder / "config.json").is_file():
        is_adaptive = (folder / "adaptive.json").is_file()
        instead = "the plain model that this saved adaptive model was trained from" if is_adaptive else "another folder"
        raise EnvironmentProblem(
            f"A model folder holds config.json, *.safetensors and a tokenizer, but {str(folder)!r} has no config.json. "
            f"Name {instead}."
        )
    check_config(folder / "config.json", str(folder))
    if (folder / "adapter_config.json").is_file():  # transformers would freeze the model and load adapters onto it
        raise EnvironmentProblem(
            f"A model folder holds a whole model, but by adapter_config.json {str(folder)!r} is an adapter. Remove "
            f"that file if the adapter is merged into the weights already, or merge it and name the merged model."
        )


def check_config(file: Path, model: str) -> None:
    """Refuse the config.json of a model that cannot be measured.

    Args:
        model: The model's name, as the user wrote it.
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
            f"A model belongs to one of the families {', '.join(known)}, but {str(file)!r} says model_type {family!r}. "
            f"Name another model, or register the family (see docs/models.md)."
        )
    # Refused even if the weights are plain: this entry makes transformers build quantized maps, which are untrainable.
    if (quantized := config.get("quantization_config")) is not None:
        raise EnvironmentProblem(
            f"A backbone has plain weights, but the config.json of {model!r} has a quantization_config "
            f"({one_line(str(quantized), 100)}). Dequantize the model and save it again, or remove that entry if its "
            f"weights are plain; --quantize quantizes them for evaluation."
        )


def check_loaded(name: str, model: PreTrainedModel, found: Mapping[str, Any]) -> list[str]:
    """Refuse a model whose tensors are not those that its files hold.

    Args:
        name: The model's name, as the user wrote it.
        found: The loading info of transformers.

    Returns:
        Names of tensors outside the decoder and its head, such as those of a classifier (`score`), a value head or an
        image tower. A language model of text computes the same without them.

    Raises:
        EnvironmentProblem: Tensors are missing, have other shapes, or belong to a decoder with other parts.
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
    # A checkpoint of the decoder alone names its tensors without the prefix.
    parts = {part for module in (model, decoder) for part, _ in module.named_children()}
    # Without such tensors the model computes something else. They are layers that config.json cuts off, biases that it
    # turns off, norms of another family, or adapters that were not merged.
    if inside := [key for key in unused if key.partition(".")[0] in parts]:
        raise EnvironmentProblem(
            f"The weights of a decoder are all used, but a {type(model).__name__} with the config.json of {name!r} "
            f"({model.config.num_hidden_layers} layers) has no place for {len(inside)} of them (the first: "
            f"{one_line(inside[0], 200)}). Correct config.json, merge adapters into the weights, or save the model "
            f"again without what does not belong to it."
        )
    return unused


def read_header(file: Path) -> tuple[int, str]:
    """The number of weights in a GGUF file, and their types, most frequent first, such as `Q4_K, Q6_K, F32`."""
    if importlib.util.find_spec("gguf") is None:
        raise EnvironmentProblem(
            f"Reading the model file {str(file)!r} needs the package gguf, which is not installed. Install it with "
            f"`pip install 'adaptive-bench[gguf]'`, or name a folder in Hugging Face layout."
        )
    from gguf import GGUFReader

    try:
        reader: Any = GGUFReader(file)
        # Fields of several values are skipped: decoding a vocabulary takes long and is not needed here.
        values: dict[str, Any] = {key: one.contents() for key, one in reader.fields.items() if len(one.data) == 1}
        weights: dict[str, int] = {}
        for tensor in reader.tensors:
            form = tensor.tensor_type.name
            weights[form] = weights.get(form, 0) + int(tensor.n_elements)
    except Exception as error:  # reading a user's file may raise anything
        if isinstance(error, MemoryError):
            raise
        raise EnvironmentProblem(
            f"The model file {str(file)!r} cannot be read as GGUF: {type(error).__name__}: {message_of(error)[:300]}. "
            f"Copy it again, or name another model."
        ) from error
    _check_whole(file, values, [tensor.name for tensor in reader.tensors])
    return sum(weights.values()), ", ".join(sorted(weights, key=lambda form: -weights[form]))


def _check_whole(file: Path, values: dict[str, Any], tensors: list[str]) -> None:
    if int(values.get("split.count", 1)) > 1:
        raise EnvironmentProblem(
            f"A model in GGUF is one file, got the first of {values['split.count']} in {str(file)!r}. Join them with "
            f"llama.cpp's llama-gguf-split --merge, or name a folder in Hugging Face layout."
        )
    family = str(values.get("general.architecture"))
    left_out = [
        f"{name} {one_line(repr(values[f'{family}.{name}']), 60)}"
        for name, known in _SETTINGS.items()
        if family not in known and values.get(f"{family}.{name}") not in (None, "none", 0)
    ]
    left_out += [f"the tensor {name}" for name in tensors if name.startswith(_TENSORS)]
    if left_out:
        raise EnvironmentProblem(
            f"transformers reads a GGUF file as its architecture ({family}) without {', '.join(left_out)}, which "
            f"{str(file)!r} asks for: it would be another model. Name the original model in Hugging Face layout."
        )


@contextmanager
def alone(file: Path) -> Iterator[dict[str, str]]:
    """Arguments with which `from_pretrained` reads a GGUF file from a temporary folder that holds nothing else.

    In the file's own folder it would also read the files beside it.
    """
    with TemporaryDirectory() as folder:
        (Path(folder) / file.name).symlink_to(file)
        yield {"pretrained_model_name_or_path": folder, "gguf_file": file.name}


def as_plain(model: Any) -> None:
    """Remove the quantization config that transformers leaves on a model whose weights it has dequantized."""
    if (quantizer := getattr(model, "hf_quantizer", None)) is not None:
        quantizer.remove_quantization_config(model)
