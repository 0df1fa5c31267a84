"""Arguments of a forward pass: what an adaptive model cannot honour, or would misread, is refused."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from adaptive_bench.engine.call import EngineCall
from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.errors import UsageError
from adaptive_bench.method import Method
from adaptive_bench.method.call import label_follows


def refuse_unsupported(
    method: Method, inputs_embeds: Any, output_attentions: bool | None, hidden_states: bool | None
) -> None:
    """Refuse what would be computed wrongly or left out in silence.

    Raises:
        UsageError: Embeddings in place of ids, attention weights, or hidden states of a method under which tokens wait.
    """
    if inputs_embeds is not None:
        raise UsageError(
            "An adaptive model reads token ids, as random draws and losses hang on them, got inputs_embeds. Pass "
            "input_ids, or run the dense model: model.backbone_model(inputs_embeds=...)."
        )
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


def check_ids(ids: Any) -> None:
    """Refuse what are no token ids [B, S], such as a text.

    Raises:
        UsageError: It is no tensor, has another shape, or holds no token.
    """
    if not isinstance(ids, Tensor) or ids.dim() != 2 or not ids.numel():
        got = f"the shape {list(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
        raise UsageError(
            f"input_ids are a tensor [rows, tokens] of token ids with one token at least, got {got}. "
            f"Give those of tokenizer(texts, return_tensors='pt')."
        )


def check_mask(mask: Tensor, ids: Tensor, cache: AdaptiveCache | None = None) -> None:
    """Refuse an attention mask that is not of the tokens [B, S], or of them and those that a cache holds.

    Raises:
        UsageError: It has another shape.
    """
    rows, length = ids.shape
    held = 0 if cache is None else cache.get_seq_length()
    # Padding of earlier calls is in a mask and not in the cache: nobody knows how much wider it has to be.
    fits = mask.dim() == 2 and (mask.shape[1] == length or (held and mask.shape[1] >= held + length))
    if not fits or len(mask) != rows:
        raise UsageError(
            f"attention_mask has the shape of input_ids, {[rows, length]}, or with a cache that of all tokens so far, "
            f"got {list(mask.shape)}. Give the one that the tokenizer gives with the ids."
        )


def check_cache(cache: Any, ids: Tensor) -> None:
    """Refuse a cache of another kind, which Hugging Face's own are, or of other rows than the tokens' [B, S].

    Raises:
        UsageError: It is one.
    """
    if cache is not None and not (isinstance(cache, AdaptiveCache) and len(cache.session.host_lengths) == len(ids)):
        got = f"one of {len(cache.session.host_lengths)}" if isinstance(cache, AdaptiveCache) else type(cache).__name__
        raise UsageError(
            f"past_key_values is what an earlier call of this model returned for the same rows, here {len(ids)}, got "
            f"{got}. Pass output.past_key_values of a call with use_cache=True, or leave it out."
        )


def take_labels(call: EngineCall, labels: Tensor, step_labels: Tensor | int | None) -> Tensor | None:
    """Give a call its labels [B, S], but for those behind padding: there is no text that they could be predicted from.

    Args:
        step_labels: How many follow a token in all calls of an optimizer step, if there are several.

    Returns:
        The share of these that the call has; `None` where it stands alone.

    Raises:
        UsageError: None is left to train on.
    """
    share = None if step_labels is None else label_follows(labels).sum() / step_labels
    if not call.all_valid:
        valid = call.valid if labels.device == call.valid.device else torch.from_numpy(call.host_valid)
        labels = labels.masked_fill(functional.pad(~valid[:, :-1], (1, 0)), -100)
    call.labels = labels.to(call.input_ids.device)
    if labels.device.type == "cpu":  # where they count is known without waiting for a device
        written_from = label_follows(labels).flatten().nonzero()[:, 0]
        if call.training and call.spread is None and not step_labels:  # other calls, or processes, may have some
            check_some_label(written_from)
        call.written_from = written_from.to(call.input_ids.device)
    return share


def check_some_label(counted: Tensor) -> None:
    """Refuse to train on labels of which none counts: their mean would be no number.

    Args:
        counted: Where a label follows.

    Raises:
        UsageError: Nowhere.
    """
    if not counted.numel():
        raise UsageError(
            "A loss is the mean over labels that follow a token, got labels of which none is left: all are -100, or "
            "each row has one token alone. Leave such a batch out, or give it labels."
        )


def positions_to_keep(wanted: Tensor | int) -> tuple[Any, Any]:
    """An index into [B, S]: everything (0), the last n, positions [K] of all rows, or [B, K] of each row."""
    if isinstance(wanted, int):
        return slice(None), slice(-wanted, None) if wanted else slice(None)
    return slice(None) if wanted.dim() == 1 else torch.arange(len(wanted), device=wanted.device)[:, None], wanted


def check_positions(given: Tensor, own: Tensor, valid: Tensor) -> None:
    """Refuse positions ([B, S] or [1, S]) that are not the model's own [B, S] where there are real tokens.

    Raises:
        UsageError: They differ: several texts in a row, or gaps.
    """
    if bool(((given.to(own.device) != own) & valid).any()):
        raise UsageError(
            "Positions count the real tokens of a row from 0, as attention_mask and the cache give them, got other "
            "position_ids (several texts packed into a row?). Leave position_ids out and give each text a row."
        )
