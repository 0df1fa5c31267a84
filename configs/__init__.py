"""Presets of `adaptive-bench run`, one YAML file each, registered as entry points by their file name."""

from pathlib import Path

_FOLDER = Path(__file__).parent

nano = _FOLDER / "nano.yaml"
nano_all = _FOLDER / "nano_all.yaml"
smoke = _FOLDER / "smoke.yaml"
tune = _FOLDER / "tune.yaml"
pretrained_small = _FOLDER / "pretrained_small.yaml"
pretrained_medium = _FOLDER / "pretrained_medium.yaml"
pretrained_large = _FOLDER / "pretrained_large.yaml"
real_text = _FOLDER / "real_text.yaml"
paper_generative = _FOLDER / "paper_generative.yaml"
paper_loglikelihood = _FOLDER / "paper_loglikelihood.yaml"
paper_instruct = _FOLDER / "paper_instruct.yaml"
paper_out_of_domain = _FOLDER / "paper_out_of_domain.yaml"
paper_ablations = _FOLDER / "paper_ablations.yaml"
paper_lambada = _FOLDER / "paper_lambada.yaml"
paper_wmt16 = _FOLDER / "paper_wmt16.yaml"
