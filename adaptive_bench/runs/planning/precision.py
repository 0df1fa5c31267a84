"""What `train.precision: auto` means: bf16 where a short training pass at the model's width is faster in it, else fp32.

Weights stay in fp32 either way, as do what methods decide and all of the evaluation. What was chosen is kept beside the
records: every method of a folder is trained alike, also where another machine goes on.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Literal, NamedTuple

import torch

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import AdaptiveBenchError
from adaptive_bench.runs.planning.backbones import BackboneSource, empty_model, find_backbone, find_device
from adaptive_bench.runs.planning.kept import kept
from adaptive_bench.runs.planning.passes import few_layers, seconds, with_values
from adaptive_bench.store.keys import key_of

FOLDER = "precision"
_TOKENS, _LAYERS, _WORDS = 256, 1, 2048  # read at once, and most of the model that reads them
_WORTH = 1.2  # times as fast, to be chosen


class Chosen(NamedTuple):
    """The precision of the trainings in a folder, and how many times as fast as fp32 bf16 was measured to be."""

    precision: Literal["fp32", "bf16"]
    speedup: float

    def __str__(self) -> str:
        return f"{self.precision} (bf16 measured {self.speedup:.1f}x as fast as fp32)"


_chosen: dict[str, Chosen] = {}  # by file: a run is planned more than once


def with_precision(config: RunConfig) -> RunConfig:
    """The config with the precision that `auto` means for its model, device and folder; as it is where its model cannot
    be read, which fails in any case.
    """
    with suppress(AdaptiveBenchError):
        if config.train.precision == "auto":
            train = config.train.model_copy(update={"precision": chosen(config).precision})
            return config.model_copy(update={"train": train})
    return config


def chosen(config: RunConfig) -> Chosen:
    """What was chosen for a config that says `auto`, read or measured.

    Raises:
        EnvironmentProblem: Its model or device cannot be reached.
    """
    if not config.train.steps:
        return Chosen("fp32", 1.0)
    source, device = find_backbone(config.model), find_device(config.device)
    about = {"backbone": source.fingerprint, "device": device.type}
    file = config.out / FOLDER / f"{key_of(about)}.json"
    if (name := str(file.absolute())) not in _chosen:
        said = kept(file, lambda: about | _measured(source, device)._asdict())
        speedup = float(said.get("speedup", 1.0))
        _chosen[name] = Chosen("bf16" if said.get("precision") == "bf16" else "fp32", speedup)
    return _chosen[name]


def _measured(source: BackboneSource, device: torch.device) -> Chosen:
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return Chosen("fp32", 0.0)
    model = with_values(few_layers(empty_model(source).config, _LAYERS, _WORDS), device)
    length = min(_TOKENS, model.config.max_position_embeddings)
    fp32, bf16 = (seconds(model, (1, length), bf16=each, backward=True) for each in (False, True))
    return Chosen("bf16" if fp32 / bf16 >= _WORTH else "fp32", fp32 / bf16)
