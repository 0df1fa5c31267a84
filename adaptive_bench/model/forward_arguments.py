"""Arguments of Hugging Face's `forward` that an adaptive model cannot honour: refused, with what to do instead."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from adaptive_bench.errors import UsageError
from adaptive_bench.method import Method


def checked_ids(
    method: Method, input_ids: Any, inputs_embeds: Any, output_attentions: bool | None, hidden_states: bool | None
) -> Tensor:
    """The token ids; what would be computed wrongly or left out in silence is refused.

    Raises:
        UsageError: Embeddings in place of ids, ids that are no tensor [B, S], attention weights, or hidden states of a
            method under which tokens wait.
    """
    if inputs_embeds is not None:
        raise UsageError(
            "An adaptive model reads token ids, as random draws and losses hang on them, got inputs_embeds. Pass "
            "input_ids, or run the dense model: model.backbone_model(inputs_embeds=...)."
        )
    if not isinstance(input_ids, Tensor) or input_ids.dim() != 2:
        got = f"shape {list(input_ids.shape)}" if isinstance(input_ids, Tensor) else type(input_ids).__name__
        raise UsageError(f"input_ids are a tensor [rows, tokens] of token ids, got {got}. Use return_tensors='pt'.")
    if output_attentions:
        raise UsageError(
            "Attention weights are not kept, since tokens that skip a branch have none, got output_attentions=True. "
            "Leave it out; model.backbone_model(input_ids, output_attentions=True) gives the dense model's."
        )
    if hidden_states and method.kv_policy == "defer":
        raise UsageError(
            "Hidden states are those after each layer, but under the KV policy 'defer' tokens wait before the deep "
            "ones, got output_hidden_states=True. Leave it out, or choose another kv=."
        )
    return input_ids


def check_positions(given: Tensor, own: Tensor, valid: Tensor) -> None:
    """Refuse positions ([B, S] or [1, S]) that are not the model's own [B, S] where there are real tokens.

    Raises:
        UsageError: They differ: several texts in a row, or gaps.
    """
    if given.shape[-1] != own.shape[1] or bool(((given.to(own.device) != own) & valid).any()):
        raise UsageError(
            "Positions count the real tokens of a row from 0, as attention_mask and the cache give them, got other "
            "position_ids (several texts packed into a row?). Leave position_ids out and give each text a row."
        )
