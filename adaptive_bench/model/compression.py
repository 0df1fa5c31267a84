"""Smaller models for evaluation: a backbone without the layers that a method leaves out for every token, as a plain
model of its family, and an adaptive model in fewer bits.

The paper's pruned models (ShortGPT below GateSkip, its table 9) are such: layers are gone before a method is trained.
"""

from __future__ import annotations

import copy
import re

import torch
from transformers import PreTrainedModel

from adaptive_bench.errors import UsageError
from adaptive_bench.model.adaptive_model import AdaptiveModel
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.weight_forms import Quantization

_TOKENS = 64  # of a probe: a share of tokens that skips shows
_ROUNDING = (
    1e-4  # of the largest logit; files and other shapes round otherwise, another layer would show in the first digit
)


def left_out(model: AdaptiveModel) -> list[int]:
    """The layers that no token executes at the model's dial, in ascending order."""
    kept: dict[int, set[bool]] = {}
    with recorded_decisions(model.method) as decisions:
        _probe(model)
    for site, decision in decisions:
        assert decision.keep is not None
        kept.setdefault(site.layer, set()).update(decision.keep.unique().tolist())
    mixed = [layer for layer, found in kept.items() if len(found) > 1]
    gone = sorted(layer for layer, found in kept.items() if found == {False})
    if mixed or not gone:
        what = f"layer {mixed[0]}, which a part of it executes" if mixed else "a model that executes every layer"
        raise UsageError(
            f"A model is pruned of layers that every token leaves out, got {model.spec} with {what}. Name "
            f"static_depth, and how many layers it leaves out."
        )
    if len(gone) == model.backbone.num_layers:
        raise UsageError(
            f"A pruned model keeps one layer at least, got all {len(gone)} left out. Leave out fewer of them."
        )
    return gone


@torch.no_grad()
def pruned(model: AdaptiveModel) -> PreTrainedModel:
    """The backbone without the layers of `left_out`: same weights, and the same logits as the model has at its dial.

    Its config names them as `pruned_layers`.
    """
    gone, whole = left_out(model), model.backbone.model
    stay = [layer for layer in range(model.backbone.num_layers) if layer not in gone]
    config = copy.deepcopy(whole.config)
    config.num_hidden_layers = len(stay)
    for each in ("layer_types", "no_rope_layers"):  # a sliding window in some layers, rotary positions in some
        if of_layers := getattr(config, each, None):
            setattr(config, each, [of_layers[layer] for layer in stay])
    config.pruned_layers = gone
    found: PreTrainedModel = type(whole)(config)
    found = found.to(dtype=whole.dtype, device=whole.device).eval()  # type: ignore[call-arg]  # wrapped by transformers
    found.load_state_dict(_renumbered(whole.state_dict(), stay))
    found.generation_config = copy.deepcopy(whole.generation_config)
    expected, ours = _probe(model), found(_tokens(model)).logits
    if not torch.allclose(ours, expected, rtol=0, atol=_ROUNDING * float(expected.abs().max())):
        raise UsageError(
            f"A pruned model computes what the method does without those layers, got other logits from {model.spec}: "
            f"it gives tokens something in place of a layer. Name a method that gives nothing, such as static_depth."
        )
    return found


def _renumbered(state: dict[str, torch.Tensor], stay: list[int]) -> dict[str, torch.Tensor]:
    """The weights of layers that stay, under their new numbers, and all that is of no layer."""
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
    return (torch.arange(_TOKENS, device=model.device) * 7919 % model.backbone.vocab_size)[None]


@torch.no_grad()
def _probe(model: AdaptiveModel) -> torch.Tensor:
    """[1, S, V] logits of the model at its dial."""
    logits: torch.Tensor = model(_tokens(model)).logits
    return logits


def quantize(model: AdaptiveModel, how: Quantization) -> AdaptiveModel:
    """Quantize the weights of all layers in place; `none` leaves the model as it is.

    Head, embeddings, norms and all that the method adds keep their type. The ledger goes on counting what the maps
    take: the same MACs, fewer bytes. What was calibrated is forgotten, for it belongs to the weights before.
    """
    if how != "none":
        model.backbone.quantize(how)
        model.forget_calibration()
    return model
