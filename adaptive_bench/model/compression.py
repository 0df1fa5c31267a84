"""Makes smaller models for evaluation: pruned backbones, as plain models of their family, and quantized models.

Pruning removes the layers that a method skips for every token, as in the paper's pruned models (ShortGPT below
GateSkip, its table 9), where layers are removed before a method is trained.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from adaptive_bench.errors import UsageError
from adaptive_bench.model.adaptive_model import AdaptiveModel
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.validation import Quantization

_TOKENS = 64  # length of a probe: enough to notice if only a share of the tokens skips
_ROUNDING = 1e-4  # relative to the largest logit: shapes round differently, but a wrong layer changes the first digit


def left_out(model: AdaptiveModel) -> list[int]:
    """The layers that no token executes at the model's dial, in ascending order."""
    executed: set[int] = set()
    with recorded_decisions(model.method) as decisions:
        _probe(model)
    for site, decision in decisions:
        assert decision.keep is not None
        if bool(decision.keep.any()):
            executed.add(site.layer)
    gone = [layer for layer in range(model.backbone.num_layers) if layer not in executed]
    if not gone or not executed:
        raise UsageError(
            f"Pruning removes layers that every token skips, and keeps at least one layer, got {model.spec} with "
            f"{len(gone)} of {model.backbone.num_layers} left out. Name static_depth, and how many layers it leaves "
            f"out."
        )
    return gone


@torch.no_grad()
def pruned(model: AdaptiveModel) -> PreTrainedModel:
    """The backbone without the layers of `left_out`, with the same weights and the model's logits at its dial.

    The config lists the removed layers as `pruned_layers`.
    """
    gone, found = left_out(model), copy.deepcopy(model.backbone.model).eval()
    stay = [layer for layer in range(model.backbone.num_layers) if layer not in gone]
    decoder: Any = found.model  # the families share attribute names, not a typed base
    decoder.layers = nn.ModuleList(decoder.layers[layer] for layer in stay)
    for place, layer in enumerate(decoder.layers):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = place  # its place in a cache
    found.config.num_hidden_layers, found.config.pruned_layers = len(stay), gone
    for each in ("layer_types", "no_rope_layers"):  # per-layer settings: sliding windows, rotary positions
        if of_layers := getattr(found.config, each, None):
            setattr(found.config, each, [of_layers[layer] for layer in stay])
    expected, ours = _probe(model), found(_tokens(model)).logits
    if not torch.allclose(ours, expected, rtol=0, atol=_ROUNDING * float(expected.abs().max())):
        raise UsageError(
            f"A pruned model must have the method's logits without those layers, got other logits from {model.spec}: "
            f"some token skips another branch, or it replaces a layer by something else. Name a method that leaves out "
            f"whole layers, such as static_depth."
        )
    return found


def _tokens(model: AdaptiveModel) -> torch.Tensor:
    """[1, S] token ids spread over the vocabulary."""
    # The step is prime, so that ids come from all parts of the vocabulary.
    return (torch.arange(_TOKENS, device=model.device) * 7919 % model.backbone.vocab_size)[None]


@torch.no_grad()
def _probe(model: AdaptiveModel) -> torch.Tensor:
    """[1, S, V] logits of the model at its dial."""
    return model(_tokens(model)).logits


def quantize(model: AdaptiveModel, how: Quantization) -> AdaptiveModel:
    """Quantize the weights of all layers in place; `none` leaves the model unchanged.

    Head, embeddings, norms and the method's own parameters keep their dtype. The ledger then counts the same MACs but
    fewer bytes. The calibration is forgotten, because it belongs to the weights before quantization.
    """
    if how != "none":
        model.backbone.quantize(how)
        model.forget_calibration()
    return model
