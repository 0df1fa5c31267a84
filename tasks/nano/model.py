"""Where the weights of the nano backbone lie."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "weights"


def nano_folder() -> Path:
    """Folder of the shipped weights in Hugging Face's layout (entry point `nano` of `adaptive_bench.models`)."""
    return _FOLDER
