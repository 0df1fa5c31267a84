"""Where the weights of the nano backbones lie, in Hugging Face's layout (entry points `adaptive_bench.models`)."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent


def nano_folder() -> Path:
    """A Llama of a third of a million parameters, in a folder of the package."""
    return _FOLDER / "weights"


def nano_qwen3_folder() -> Path:
    """Its twin in the family Qwen3, which norms queries and keys."""
    return _FOLDER / "weights_qwen3"
