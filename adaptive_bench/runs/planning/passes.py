"""How long short passes take here, through a plain model of the width of a run's."""

from __future__ import annotations

import time
from copy import deepcopy
from statistics import median

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

_ENOUGH_S, _MOST_PASSES = 0.4, 20  # for one of them


def few_layers(shape: PretrainedConfig, layers: int, words: int) -> PreTrainedModel:
    """A model of this width with at most so many layers and words; its tensors have no values."""
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
    """The same on a device; each of its numbers is .01."""
    model = model.to_empty(device=device).eval()
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.fill_(0.01)
    return model


def seconds(model: PreTrainedModel, shape: tuple[int, int], *, bf16: bool, backward: bool = False) -> float:
    """Median of some passes over tokens of this shape [B, S]; the first one warms up.

    Args:
        bf16: Products are in bf16, over weights in fp32.
        backward: As in training.
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
