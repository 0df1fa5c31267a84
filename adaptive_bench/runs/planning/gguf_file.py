"""Models in one GGUF file, as llama.cpp has them: read by transformers, whose weights are then plain fp32."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from adaptive_bench.errors import EnvironmentProblem, message_of, one_line

SUFFIX = ".gguf"
# What transformers passes over although the model computes something else without it, and which architectures it reads
# it for.
_SETTINGS = {
    "rope.scaling.type": (),
    "attention.scale": (),
    "attention.sliding_window": ("gemma2", "gemma3"),
}
_TENSORS = ("rope_freqs.", "rope_factors_")


@dataclass(frozen=True)
class GGUFFacts:
    """What the head of a file says.

    Attributes:
        values: How many weights there are.
        forms: Their types, the most frequent first, such as `Q4_K, Q6_K, F32`.
    """

    values: int
    forms: str


def read_facts(file: Path) -> GGUFFacts:
    """Look at the head of a file; no weights are read.

    Raises:
        EnvironmentProblem: The package gguf is not installed, the file is damaged or one of several, or transformers
            would make another model of it.
    """
    if importlib.util.find_spec("gguf") is None:
        raise EnvironmentProblem(
            f"Reading the model file {str(file)!r} needs the package gguf, which is not installed. Install it with "
            f"`pip install 'adaptive-bench[gguf]'`, or name a folder in Hugging Face layout."
        )
    from gguf import GGUFReader

    try:
        reader: Any = GGUFReader(file)
        values: dict[str, Any] = {key: field.contents() for key, field in reader.fields.items() if _is_small(field)}
        weights: dict[str, int] = {}
        for tensor in reader.tensors:
            form = tensor.tensor_type.name
            weights[form] = weights.get(form, 0) + int(tensor.n_elements)
    except Exception as error:  # reading a foreign file may raise anything
        if isinstance(error, MemoryError):
            raise
        raise EnvironmentProblem(
            f"The model file {str(file)!r} cannot be read as GGUF: {type(error).__name__}: {message_of(error)[:300]}. "
            f"Copy it again, or name another model."
        ) from error
    _check_whole(file, values, [tensor.name for tensor in reader.tensors])
    return GGUFFacts(sum(weights.values()), ", ".join(sorted(weights, key=lambda form: -weights[form])))


def _is_small(field: Any) -> bool:
    return len(field.data) == 1  # a vocabulary takes long and tells nothing here


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
    """What `from_pretrained` is given for a file: a folder with nothing else, whose files it would read as well."""
    with TemporaryDirectory() as folder:
        (Path(folder) / file.name).symlink_to(file)
        yield {"pretrained_model_name_or_path": folder, "gguf_file": file.name}


def as_plain(model: Any) -> None:
    """Take away the mark of a quantized model: its weights are plain."""
    if (quantizer := getattr(model, "hf_quantizer", None)) is not None:
        quantizer.remove_quantization_config(model)
