"""The files of a model folder in Hugging Face layout: which belong to it, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

from adaptive_bench import registry
from adaptive_bench.backbone import ATTENTION
from adaptive_bench.errors import EnvironmentProblem, message_of, one_line

_MOST_LAYERS = 1000  # each is made before it is looked at
# What decides how a model computes and reads text; a README beside it does not.
_WEIGHT_FILES, _OTHER_FILES = ("*.safetensors",), ("*.json", "*.model", "*.txt", "*.jinja")
_POINTER = b"version https://git-lfs"


def files_of(folder: Path) -> list[Path]:
    """The files that a model is made of."""
    return [file for pattern in (*_WEIGHT_FILES, *_OTHER_FILES) for file in folder.glob(pattern) if file.is_file()]


def loaded_files(folder: Path, named: str | None = None) -> list[Path]:
    """The weight files that transformers reads of a folder: it may hold others, in another layout.

    Args:
        named: The file that config.json names (`transformers_weights`), if it does.

    Raises:
        EnvironmentProblem: There are none.
    """
    single, index = (folder / (named or file) for file in ("model.safetensors", "model.safetensors.index.json"))
    if single.is_file() and single.suffix == ".safetensors":
        return [single]
    if index.is_file():
        return sorted({folder / file for file in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    raise EnvironmentProblem(
        f"Weights are read from {single.name}, or from the files that {index.name} lists, but there is neither in "
        f"{str(folder)!r}. Save the model again with save_pretrained, or name another folder."
    )


def check_folder(folder: Path) -> None:
    """Refuse a folder that no model can be read from. Of weights the heads alone are read.

    Raises:
        EnvironmentProblem: A file is missing or damaged, or describes what cannot be measured.
    """
    if not (folder / "config.json").is_file():
        raise EnvironmentProblem(
            f"A model folder holds config.json, *.safetensors and a tokenizer, but there is no config.json in "
            f"{str(folder)!r}. {_instead_of(folder)}"
        )
    _check_fetched(folder)
    check_config(folder / "config.json", str(folder))
    if (folder / "adapter_config.json").is_file():  # transformers would freeze the model and load adapters onto it
        raise EnvironmentProblem(
            f"A model folder holds a whole model, but adapter_config.json in {str(folder)!r} says that this is an "
            f"adapter of one. Remove that file where the adapter is merged into the weights, or merge it first and "
            f"name the merged model."
        )
    if not any(folder.glob("*.safetensors")):
        raise EnvironmentProblem(
            f"Weights are read from *.safetensors only, but there are none in {str(folder)!r}. Convert the "
            f"weights with save_pretrained, or name another folder."
        )
    for file in sorted(folder.glob("*.index.json")):
        _check_index(file)
    for file in sorted(folder.glob("*.safetensors")):
        _check_weights(file)


def _instead_of(folder: Path) -> str:
    """What to name in place of a folder that has no config.json."""
    if (folder / "adaptive.json").is_file():
        return (
            "It is a saved adaptive model, as export-model writes them: a method on a backbone, which `adaptive-bench "
            "generate` and AdaptiveModel.from_pretrained read. A run puts methods on a plain model itself: name the "
            "one that this was trained from."
        )
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
    return int(step) if step.isdecimal() and step != model.name else -1, model.stat().st_mtime


def _check_fetched(folder: Path) -> None:
    """Refuse what a clone holds in place of large files until they are fetched: a few lines of text for each."""
    for file in sorted(files_of(folder)):
        with file.open("rb") as opened:
            if opened.read(len(_POINTER)) == _POINTER:
                raise EnvironmentProblem(
                    f"A model folder holds the files themselves, but {str(file)!r} is a pointer of Git LFS to one. "
                    f"Call `git lfs pull` in {str(folder)!r}."
                )


def _check_index(file: Path) -> None:
    """The list of a model's weight files names files beside it, and no others."""
    try:
        names = json.loads(file.read_text(encoding="utf-8"))["weight_map"].values()
        strange = [name for name in names if not isinstance(name, str) or not (file.parent / name).is_file()]
        strange += [name for name in names if name != Path(name).name]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EnvironmentProblem(
            f"The file {str(file)!r} must list the weight files of a model in JSON, but cannot be read: "
            f"{type(error).__name__}: {message_of(error)}. Copy or save the model again."
        ) from error
    if strange:
        raise EnvironmentProblem(
            f"The weights of a model are files of its folder, but {str(file)!r} names {one_line(repr(strange[0]), 100)}"
            f", which is none. Copy or save the model again."
        )


def check_config(file: Path, model: str) -> None:
    """Refuse a config.json of what cannot be measured.

    Args:
        model: Whose it is, as the user knows it.

    Raises:
        EnvironmentProblem: It cannot be read, or describes no model that a run takes.
    """
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        family = config.get("model_type")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise EnvironmentProblem(
            f"The file {str(file)!r} must describe a model in JSON, but cannot be read: {message_of(error)}. Copy or "
            f"save the model again."
        ) from error
    layers = config.get("num_hidden_layers", 0)
    if isinstance(layers, bool) or not isinstance(layers, int) or not 0 <= layers <= _MOST_LAYERS:
        raise EnvironmentProblem(
            f"A model has at most {_MOST_LAYERS} layers, got {one_line(repr(layers), 60)} in {str(file)!r}. Correct "
            f"the file, or name another model."
        )
    _check_family(family, file)
    for entry in ("attn_implementation", "_attn_implementation"):  # transformers obeys both
        if (attention := config.get(entry)) is not None and attention not in ATTENTION:
            raise EnvironmentProblem(
                f"A backbone runs attention as one of {', '.join(ATTENTION)}, which need no package such as "
                f"flash-attn, but the config.json of {model!r} says {entry} {one_line(repr(attention), 60)}. Set that "
                f"entry to 'sdpa', or remove it."
            )
    # Beside plain weights too: by the entry alone transformers builds quantized maps, which cannot be trained.
    if (quantized := config.get("quantization_config")) is not None:
        raise EnvironmentProblem(
            f"A backbone has unquantized weights, but the config.json of {model!r} has a quantization_config "
            f"({_method_of(quantized)}). Dequantize the model and save it again, or remove that entry if its weights "
            f"are plain; `--quantize` evaluates a plain model with quantized weights."
        )


def _method_of(quantized: object) -> str:
    method = quantized.get("quant_method") if isinstance(quantized, dict) else None
    return f"quant_method {one_line(repr(method), 60)}" if method else "without a quant_method"


def _check_family(family: object, file: Path) -> None:
    known = registry.names("families")
    if family not in known:
        raise EnvironmentProblem(
            f"A model is of one of the families {', '.join(known)}, but {str(file)!r} says model_type {family!r}. "
            f"Name another model, or register the family (see docs/models.md)."
        )


def _check_weights(file: Path) -> None:
    """Look at the head of a file: it says how long the file has to be."""
    try:
        with safe_open(file, "pt"):
            pass
    except (OSError, SafetensorError) as error:
        raise EnvironmentProblem(
            f"The weights in {str(file)!r} cannot be read: {message_of(error)}. The file is cut off or damaged; copy "
            f"or save the model again."
        ) from error
