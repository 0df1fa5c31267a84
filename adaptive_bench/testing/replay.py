"""What decisions mean, read off the plain Hugging Face model: an account that shares no line with the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from adaptive_bench.backbone import Family, Site, find_family
from adaptive_bench.method import Decision


def replayed_logits(backbone: PreTrainedModel, input_ids: Tensor, decisions: Sequence[tuple[Site, Decision]]) -> Tensor:
    """Logits [B, S, V] of texts [B, S] without padding, every branch executed and scaled as decided.

    Args:
        decisions: One per site that decides; their `keep` is ignored.
    """
    handles = []
    try:
        for site, decision in decisions:
            layer: Any = backbone.model.layers[site.layer]
            if site.branch == "layer":
                handles.append(layer.register_forward_hook(_scale_update(decision.scale)))
                continue
            reads, adds = _modules(layer, site.branch, find_family(backbone.config.model_type))
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
    """The module whose output the branch reads, and the one whose output it adds."""
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
        if inputs:  # an MLP is given its states by place, attention by name
            return (inputs[0] * scale, *inputs[1:]), named
        return inputs, named | {"hidden_states": named["hidden_states"] * scale}

    return hook


def _scale_update(scale: Tensor | None) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output if scale is None else inputs[0] + scale * (output - inputs[0])

    return hook
