"""Presets of `adaptive-bench run`, one YAML file each, registered as entry points by their file name."""

from pathlib import Path


def __getattr__(name: str) -> Path:
    """Return the file of a preset."""
    file = Path(__file__).with_name(f"{name}.yaml")
    if not file.is_file():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return file
