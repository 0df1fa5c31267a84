"""Arguments of a forward pass: what an adaptive model cannot honour or read is refused, with what to do instead.

Types, shapes and devices are looked at in every call, since that is free. Values are looked at where the host has them:
reading them from another device would make every call wait for it.
"""

from __future__ import annotations

from typing import Any, TypeGuard, get_args

import torch
from torch import Tensor
from torch.nn import functional

from adaptive_bench.engine.call import EngineCall
from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.errors import UsageError
from adaptive_bench.method import Method, Phase
from adaptive_bench.method.call import label_follows
from adaptive_bench.validation import is_count

_IDS = (torch.long, torch.int)
_PHASES = get_args(Phase)


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
    """Refuse what is no tensor [B, S] of token ids.

    Raises:
        UsageError: It is something else, or holds no token.
    """
    if not _is_dense(ids) or ids.dim() != 2 or ids.dtype not in _IDS or not ids.numel():
        raise UsageError(
            f"input_ids are a tensor [rows, tokens] of token ids (torch.long) with one token at least, got "
            f"{described(ids)}. Give those of tokenizer(texts, return_tensors='pt')."
        )


def check_mask(mask: Any, ids: Tensor, cache: AdaptiveCache | None = None) -> None:
    """Refuse an attention mask that is not of the tokens [B, S], or of them and those that a cache holds.

    Raises:
        UsageError: It is no tensor, or has another shape.
    """
    rows, length = ids.shape
    if _is_dense(mask) and mask.dim() == 2 and len(mask) == rows:
        # One that is added to scores, 0 and -inf, would say the opposite of what it means.
        if mask.is_cpu and mask.dtype != torch.bool and not 0 <= float(mask.min()) <= float(mask.max()) <= 1:
            ends = f"{float(mask.min()):g} to {float(mask.max()):g}"
            raise UsageError(f"attention_mask is 1 for tokens and 0 for padding, got values from {ends}. Give those.")
        held = 0 if cache is None else cache.get_seq_length()
        # Padding of earlier calls is in a mask and not in the cache: nobody knows how much wider it has to be.
        if mask.shape[1] == length or (held and mask.shape[1] >= held + length):
            return
    raise UsageError(
        f"attention_mask has the shape of input_ids, {[rows, length]}, or with a cache that of all tokens so far, got "
        f"{described(mask)}. Give the one that the tokenizer gives with the ids."
    )


def checked_call(
    ids: Any, place: torch.device, mask: Any, cache: Any, continuation: Any, phase: Any, requests: Any
) -> Tensor:
    """The ids of a call whose arguments fit each other and the model; see `ForwardModel.forward`.

    Args:
        place: Where the model computes.

    Raises:
        UsageError: One of them does not fit.
    """
    check_ids(ids)
    if ids.device != place:
        raise _elsewhere("input_ids", ids, place)
    if cache is not None and not (isinstance(cache, AdaptiveCache) and len(cache.session.host_lengths) == len(ids)):
        got = f"one of {len(cache.session.host_lengths)}" if isinstance(cache, AdaptiveCache) else described(cache)
        raise UsageError(
            f"past_key_values is what an earlier call of this model returned for the same rows, here {len(ids)}, got "
            f"{got}. Pass output.past_key_values of a call with use_cache=True, or leave it out."
        )
    if mask is not None:
        check_mask(mask, ids, cache)
        if not mask.is_cpu and mask.device != place:
            raise _elsewhere("attention_mask", mask, place)
    if continuation is not None:
        check_like("continuation_mask", continuation, ids, "true for tokens after the prompt")
        if continuation.device != place:
            raise _elsewhere("continuation_mask", continuation, place)
    if phase is not None and phase not in _PHASES:
        raise UsageError(f"A phase is {' or '.join(map(repr, _PHASES))}, got {phase!r}. Leave it out, or name one.")
    if requests is not None and not _are_counts(requests, len(ids)):
        raise UsageError(
            f"requests has one whole number of at least 1 for each of the {len(ids)} rows, got {requests!r}. Leave it "
            f"out where each row is one request."
        )
    return ids


def check_like(name: str, given: Any, ids: Tensor, about: str) -> None:
    """Refuse what is no tensor of the shape of the ids.

    Raises:
        UsageError: It is none.
    """
    if not _is_dense(given) or given.shape != ids.shape:
        raise UsageError(
            f"{name} has the shape of input_ids, {list(ids.shape)} ({about}), got {described(given)}. Give one value "
            f"for each token."
        )


def check_labels(labels: Any, ids: Tensor, size: int) -> None:
    """Refuse labels that are not those of the tokens [B, S], and on a CPU those that the vocabulary does not have.

    Raises:
        UsageError: They are not.
    """
    check_like("labels", labels, ids, "token ids, -100 where no loss is wanted")
    is_whole = labels.dtype == torch.long
    if not is_whole or (labels.is_cpu and bool((((labels < 0) & (labels != -100)) | (labels >= size)).any())):
        got = f"labels from {int(labels.min())} to {int(labels.max())}" if is_whole else str(labels.dtype)
        raise UsageError(
            f"labels are token ids in 0 .. {size - 1} as torch.long, or -100 where no loss is wanted, got {got}. Give "
            f"input_ids.masked_fill(attention_mask == 0, -100)."
        )


def take_labels(call: EngineCall, labels: Tensor, step_labels: Tensor | int | None) -> Tensor | None:
    """Give a call its labels [B, S], but for those behind padding: there is no text that they could be predicted from.

    Args:
        step_labels: How many follow a token in all calls of an optimizer step, if there are several.

    Returns:
        The share of these that the call has; `None` where it stands alone.

    Raises:
        UsageError: They are no labels of these tokens, or none is left to train on.
    """
    check_labels(labels, call.input_ids, call.backbone.vocab_size)
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


def positions_to_keep(wanted: Any, length: int) -> tuple[Any, Any]:
    """An index into [B, S]: everything (0), the last n, positions [K] of all rows, or [B, K] of each row.

    Raises:
        UsageError: It is neither such a number nor a tensor of positions.
    """
    if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 0:
        return slice(None), slice(-wanted, None) if wanted else slice(None)
    if isinstance(wanted, Tensor) and wanted.dtype in _IDS and _are_below(wanted, length):
        if wanted.dim() == 1:
            return slice(None), wanted
        if wanted.dim() == 2:
            return torch.arange(len(wanted), device=wanted.device)[:, None], wanted
    raise UsageError(
        f"logits_to_keep is 0 for all positions, n for the last n, or a tensor [K] or [rows, K] of positions below "
        f"{length}, got {described(wanted)}. Leave it out to keep all."
    )


def _are_below(places: Tensor, length: int) -> bool:
    """Whether positions exist, as far as that is known without waiting for a device."""
    return not places.is_cpu or not places.numel() or (-length <= int(places.min()) and int(places.max()) < length)


def _elsewhere(name: str, given: Tensor, device: torch.device) -> UsageError:
    return UsageError(
        f"{name} must be where the model computes, on {device}, but is on {given.device}. Call {name}.to(model.device)."
    )


def _is_dense(value: Any) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.layout == torch.strided


def _are_counts(given: Any, rows: int) -> bool:
    return hasattr(given, "__len__") and len(given) == rows and all(map(is_count, given))


def described(value: Any) -> str:
    """What a value is, for the end of a sentence."""
    if isinstance(value, Tensor):
        few = f" with {value.tolist()}" if value.is_cpu and _is_dense(value) and 0 < value.numel() <= 4 else ""
        layout = "" if _is_dense(value) else f" with the layout {value.layout}"
        return f"{value.dtype} of shape {list(value.shape)}{few or layout}"
    kind = type(value).__name__
    return f"{kind} {value!r}" if isinstance(value, bool | int | float) else "None" if value is None else kind


def check_positions(given: Any, own: Tensor, valid: Tensor) -> None:
    """Refuse positions ([B, S] or [1, S]) that are not the model's own [B, S] where there are real tokens.

    Raises:
        UsageError: They differ: several texts in a row, or gaps.
    """
    if not isinstance(given, Tensor) or given.shape not in (own.shape, own[:1].shape):
        raise UsageError(
            f"position_ids have the shape of input_ids, {list(own.shape)}, or [1, {own.shape[1]}], got "
            f"{described(given)}. Leave position_ids out: the model counts itself."
        )
    if bool(((given.to(own.device) != own) & valid).any()):
        raise UsageError(
            "Positions count the real tokens of a row from 0, as attention_mask and the cache give them, got other "
            "position_ids (several texts packed into a row?). Leave position_ids out and give each text a row."
        )
