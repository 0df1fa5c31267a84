"""Where the weights of the nano backbones lie."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent


def nano_folder() -> Path:
    """Folder of the shipped Llama in Hugging Face's layout (entry point `nano` of `adaptive_bench.models`)."""
    return _FOLDER / "weights"


def nano_qwen3_folder() -> Path:
    """The same of its twin in the family Qwen3, which norms queries and keys (entry point `nano_qwen3`)."""
    return _FOLDER / "weights_qwen3"
