"""Measures for checks: replays decisions on the plain model, compares two runs, and counts savings by phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from adaptive_bench.backbone import Family, Site, find_family
from adaptive_bench.method import Decision
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.testing.backbones import Text
from adaptive_bench.testing.check_definition import Violation


def replayed_logits(backbone: PreTrainedModel, input_ids: Tensor, decisions: Sequence[tuple[Site, Decision]]) -> Tensor:
    """Logits [B, S, V] of the plain model on texts [B, S] without padding, with every branch executed and scaled as
    decided. There is one decision for each site that decides; its `keep` is ignored.
    """
    handles = []
    try:
        for site, decision in decisions:
            layer: Any = backbone.model.layers[site.layer]
            if site.branch == "layer":
                handles.append(layer.register_forward_hook(_scale_update(decision.scale)))
                continue
            reads, adds = _modules(layer, site.branch, find_family(backbone.config.model_type))
            # Without a norm there is no module whose output is the branch's input, so the input itself is scaled.
            if reads is None:
                own = layer.self_attn if site.branch == "attention" else layer.mlp
                handles.append(own.register_forward_pre_hook(_scale_input(decision.input_scale), with_kwargs=True))
            else:
                handles.append(reads.register_forward_hook(_scale(decision.input_scale)))
            handles.append(adds.register_forward_hook(_scale(decision.scale)))
        return backbone(input_ids).logits
    finally:
        for handle in handles:
            handle.remove()


def _modules(layer: Any, branch: str, family: Family) -> tuple[nn.Module | None, nn.Module]:
    """The module whose output the branch reads (`None` if there is no norm), and the one whose output is added."""
    own = "self_attn" if branch == "attention" else "mlp"
    before = family.norm_before.get(branch)
    reads = None if before is None else getattr(layer, before)
    return reads, getattr(layer, family.norm_after.get(branch, own))


def _scale(scale: Tensor | None) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        if scale is None:
            return output
        if isinstance(output, tuple):  # attention returns its weights as well
            return (output[0] * scale, *output[1:])
        return output * scale

    return hook


def _scale_input(scale: Tensor | None) -> Any:
    def hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if scale is None:
            return None
        if inputs:  # an MLP gets its states as a positional argument, attention by name
            return (inputs[0] * scale, *inputs[1:]), named
        return inputs, named | {"hidden_states": named["hidden_states"] * scale}

    return hook


def _scale_update(scale: Tensor | None) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        # `output - inputs[0]` is what the layer adds to the stream.
        return output if scale is None else inputs[0] + scale * (output - inputs[0])

    return hook


TOLERANCE = 1e-4  # difference of fp32 logits between two orders of the same sums
NEW_TOKENS = 6


def difference(one: Tensor, other: Tensor) -> float:
    """Largest absolute difference; infinite if a value is not a number."""
    return float((one - other).abs().nan_to_num(nan=torch.inf).max()) if one.numel() else 0.0


@torch.no_grad()
def logits_of(model: AdaptiveModel, text: Text) -> Tensor:
    """Logits [N, V] of the real tokens of a text, row after row, scored in one call."""
    return model(**text.arguments).logits[text.valid]


def generated_tokens(model: AdaptiveModel, text: Text) -> list[list[int]]:
    """The tokens that the model writes after the prompts; some rows finish before others."""
    # Any rule that ends rows at different times would do.
    ends = lambda new: new[-1] % 7 == 0  # noqa: E731
    return new_tokens(model, text.input_ids, text.attention_mask, max_new_tokens=NEW_TOKENS, stop=ends)


def demand(condition: bool, message: str) -> None:
    """Raise a `Violation` unless a condition holds."""
    if not condition:
        raise Violation(message)


@torch.no_grad()
def saved_by_phase(model: AdaptiveModel, text: Text, prompt: int) -> dict[str, float]:
    """Shares of token-branches saved by phase, for rows of equal length.

    `scoring` is one call over the whole text. In cached decoding of the same text, `prompt` is the prompt, `writing` is
    the rest with one token per row and call, and `together` is both.
    """
    model.reset_ledger()
    model(**text.arguments)
    scoring = model.compute_report()["prefill"]["tokens"]
    model.reset_ledger()
    output = model(text.input_ids[:, :prompt], use_cache=True, logits_to_keep=1)
    for at in range(prompt, text.input_ids.shape[1]):
        output = model(text.input_ids[:, at : at + 1], past_key_values=output.past_key_values, use_cache=True)
    report = model.compute_report()
    return {
        "scoring": scoring,
        "prompt": report["prefill"]["tokens"],
        "writing": report["decode"]["tokens"],
        "together": report["saved"]["tokens"],
    }
