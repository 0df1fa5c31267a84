"""Folders of the nano backbones' weights, in Hugging Face's layout (entry points `adaptive_bench.models`)."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent


def nano_folder() -> Path:
    """Folder of the nano Llama, which has a third of a million parameters."""
    return _FOLDER / "weights"


def nano_qwen3_folder() -> Path:
    """Folder of its counterpart in the family Qwen3, which normalises queries and keys."""
    return _FOLDER / "weights_qwen3"
