"""Presets of `adaptive-bench run`, one YAML file each, registered as entry points by their file name."""

from pathlib import Path

_FOLDER = Path(__file__).parent

nano = _FOLDER / "nano.yaml"
smoke = _FOLDER / "smoke.yaml"
tune = _FOLDER / "tune.yaml"
paper_llama_1b = _FOLDER / "paper_llama_1b.yaml"
pretrained_small = _FOLDER / "pretrained_small.yaml"
pretrained_medium = _FOLDER / "pretrained_medium.yaml"
pretrained_large = _FOLDER / "pretrained_large.yaml"
