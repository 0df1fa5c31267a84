"""Makes smaller models for evaluation: pruned backbones, as plain models of their family, and quantized models.

Pruning removes the layers that a method skips for every token, as in the paper's pruned models (ShortGPT below
GateSkip, its table 9), where layers are removed before a method is trained.
"""

from __future__ import annotations

import copy
import re

import torch
from transformers import PreTrainedModel

from adaptive_bench.errors import UsageError
from adaptive_bench.model.adaptive_model import AdaptiveModel
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.validation import Quantization

_TOKENS = 64  # length of a probe: enough to notice if only a share of the tokens skips
_ROUNDING = 1e-4  # relative to the largest logit: shapes round differently, but a wrong layer changes the first digit


def left_out(model: AdaptiveModel) -> list[int]:
    """The layers that no token executes at the model's dial, in ascending order."""
    kept: dict[int, set[bool]] = {}
    with recorded_decisions(model.method) as decisions:
        _probe(model)
    for site, decision in decisions:
        assert decision.keep is not None
        kept.setdefault(site.layer, set()).update(decision.keep.unique().tolist())
    # One set per layer for both of its branches: attention and MLP must be skipped together.
    mixed = [layer for layer, found in kept.items() if len(found) > 1]
    gone = sorted(layer for layer, found in kept.items() if found == {False})
    if mixed or not gone:
        what = f"layer {mixed[0]}, which some tokens execute" if mixed else "a model that executes every layer"
        raise UsageError(
            f"Pruning removes layers that every token skips, got {model.spec} with {what}. Name "
            f"static_depth, and how many layers it leaves out."
        )
    if len(gone) == model.backbone.num_layers:
        raise UsageError(
            f"A pruned model keeps at least one layer, got all {len(gone)} left out. Leave out fewer layers."
        )
    return gone


@torch.no_grad()
def pruned(model: AdaptiveModel) -> PreTrainedModel:
    """The backbone without the layers of `left_out`, with the same weights and the model's logits at its dial.

    The config lists the removed layers as `pruned_layers`.
    """
    gone, whole = left_out(model), model.backbone.model
    stay = [layer for layer in range(model.backbone.num_layers) if layer not in gone]
    config = copy.deepcopy(whole.config)
    config.num_hidden_layers = len(stay)
    for each in ("layer_types", "no_rope_layers"):  # per-layer settings: sliding windows, rotary positions
        if of_layers := getattr(config, each, None):
            setattr(config, each, [of_layers[layer] for layer in stay])
    config.pruned_layers = gone
    found: PreTrainedModel = type(whole)(config)
    found = found.to(dtype=whole.dtype, device=whole.device).eval()  # type: ignore[call-arg]  # wrapped by transformers
    # Strict: a weight too few or too many is an error.
    found.load_state_dict(_renumbered(whole.state_dict(), stay))
    found.generation_config = copy.deepcopy(whole.generation_config)
    expected, ours = _probe(model), found(_tokens(model)).logits
    if not torch.allclose(ours, expected, rtol=0, atol=_ROUNDING * float(expected.abs().max())):
        raise UsageError(
            f"A pruned model must have the method's logits without those layers, got other logits from {model.spec}: "
            f"it replaces a layer by something else. Name a method that replaces nothing, such as static_depth."
        )
    return found


def _renumbered(state: dict[str, torch.Tensor], stay: list[int]) -> dict[str, torch.Tensor]:
    """The weights of the remaining layers under their new numbers, and all weights outside the layers."""
    numbers = {str(layer): str(place) for place, layer in enumerate(stay)}
    found = {}
    for name, value in state.items():
        parts = re.fullmatch(r"(model\.layers\.)(\d+)(\..*)", name)
        if parts is None:
            found[name] = value
        elif parts[2] in numbers:
            found[parts[1] + numbers[parts[2]] + parts[3]] = value
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
