"""Chooses what `train.precision: auto` means: bf16 if a short training pass at the model's width is faster in it.

Otherwise trainings use fp32. Weights, the decisions of methods and all evaluation stay in fp32 either way. The choice
is kept beside the records, so that every method of a folder is trained alike, even if another machine continues the
run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem
from adaptive_bench.runs.backbone_source import BackboneSource, empty_model, find_backbone, find_device
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import key_of

_ENOUGH_S, _MOST_PASSES = 0.4, 20  # after either, timing one model in one precision ends
FOLDER = "precision"
_TOKENS, _LAYERS, _WORDS = 256, 1, 2048  # at most, of the text and of the model that is timed
_WORTH = 1.2  # least speedup for which bf16 is chosen


def kept(file: Path, choose: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Read a choice from a JSON file; if there is none or it cannot be read, choose now and write the choice there.

    If several processes choose at the same time, the first choice stays. A choice that cannot be written is made again
    next time.
    """
    if (found := _read(file)) is None:
        chosen = choose()
        if (found := _read(file)) is None:
            found = chosen
            with suppress(EnvironmentProblem):
                atomic.write_json(file, chosen)
    return found


def _read(file: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        found = json.loads(file.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    return None


def few_layers(shape: PretrainedConfig, layers: int, words: int) -> PreTrainedModel:
    """A model of this width with at most `layers` layers and `words` vocabulary entries; its tensors have no values."""
    few = deepcopy(shape)
    few.num_hidden_layers, few.vocab_size = min(shape.num_hidden_layers, layers), min(shape.vocab_size, words)
    few.pad_token_id = None
    if getattr(few, "layer_types", None):
        few.layer_types = few.layer_types[: few.num_hidden_layers]
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(few, dtype=torch.float32)
    return model


@torch.no_grad()
def with_values(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """The same model on a device, with every number set to 0.01."""
    model = model.to_empty(device=device).eval()
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.fill_(0.01)
    return model


def seconds(model: PreTrainedModel, shape: tuple[int, int], *, bf16: bool, backward: bool = False) -> float:
    """Median time of passes over tokens of this shape [B, S], without the first pass, which warms up.

    Args:
        bf16: Whether matrix products are computed in bf16; weights stay in fp32.
        backward: Whether each pass includes a backward pass, as in training.
    """
    device = next(model.parameters()).device
    ids, taken_s = torch.ones(shape, dtype=torch.long, device=device), list[float]()
    while len(taken_s) < 3 or (sum(taken_s) < _ENOUGH_S and len(taken_s) < _MOST_PASSES):
        start_s = time.perf_counter()
        with torch.set_grad_enabled(backward), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            logits = model(ids, use_cache=False).logits
        if backward:
            logits.float().mean().backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken_s.append(time.perf_counter() - start_s)
    return median(taken_s[1:])


class Chosen(NamedTuple):
    """The precision of the trainings in a folder, and the measured speedup of bf16 over fp32."""

    precision: Literal["fp32", "bf16"]
    speedup: float

    def __str__(self) -> str:
        return f"{self.precision} (bf16 measured {self.speedup:.1f}x as fast as fp32)"


_chosen: dict[str, Chosen] = {}  # by file; kept, as a run is planned more than once


def with_precision(config: RunConfig) -> RunConfig:
    """The config with the precision that `auto` means for its model, device and folder.

    The config is unchanged if its model or device cannot be reached; the checks of the run report that.
    """
    with suppress(AdaptiveBenchError):
        if config.train.precision == "auto":
            train = config.train.model_copy(update={"precision": chosen(config).precision})
            return config.model_copy(update={"train": train})
    return config


def chosen(config: RunConfig) -> Chosen:
    """The choice for a config that says `auto`, read from disk or measured.

    Raises:
        EnvironmentProblem: The model or the device cannot be reached.
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
