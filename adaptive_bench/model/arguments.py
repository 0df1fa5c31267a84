"""Checks arguments of `forward` and Hugging Face's `generate`, and refuses what an adaptive model cannot honour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig

from adaptive_bench.engine.engine_call import EngineCall
from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.errors import UsageError
from adaptive_bench.method.call import label_follows


def check_ids(ids: Any) -> None:
    """Refuse anything but token ids [B, S], such as a text."""
    if not isinstance(ids, Tensor) or ids.dim() != 2 or not ids.numel():
        got = f"the shape {list(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
        raise UsageError(
            f"input_ids are a tensor [rows, tokens] of token ids with one token at least, got {got}. "
            f"Give those of tokenizer(texts, return_tensors='pt')."
        )


def check_mask(mask: Tensor, ids: Tensor, cache: AdaptiveCache | None = None) -> None:
    """Refuse an attention mask that covers neither the tokens [B, S] nor these and the tokens in the cache."""
    rows, length = ids.shape
    held = 0 if cache is None else cache.get_seq_length()
    # A mask includes padding of earlier calls, which the cache does not, so its exact width is unknown.
    fits = mask.dim() == 2 and (mask.shape[1] == length or (held and mask.shape[1] >= held + length))
    if not fits or len(mask) != rows:
        raise UsageError(
            f"attention_mask has the shape of input_ids, {[rows, length]}, or with a cache that of all tokens so far, "
            f"got {list(mask.shape)}. Give the one that the tokenizer gives with the ids."
        )


def check_cache(cache: Any, ids: Tensor) -> None:
    """Refuse a cache of another class, such as Hugging Face's own, or with another number of rows than the tokens."""
    if cache is not None and not (isinstance(cache, AdaptiveCache) and len(cache.session.host_lengths) == len(ids)):
        got = f"one of {len(cache.session.host_lengths)}" if isinstance(cache, AdaptiveCache) else type(cache).__name__
        raise UsageError(
            f"past_key_values is what an earlier call of this model returned for the same rows, here {len(ids)}, got "
            f"{got}. Pass output.past_key_values of a call with use_cache=True, or leave it out."
        )


def take_labels(call: EngineCall, labels: Tensor, step_labels: Tensor | int | None) -> Tensor | None:
    """Give a call its labels [B, S], without those that follow padding, since no text predicts them. Returns the call's
    share of the `step_labels` labels that follow a token in all calls of an optimizer step; `None` for a single call.
    """
    share = None if step_labels is None else label_follows(labels).sum() / step_labels
    if not call.all_valid:
        valid = call.valid if labels.device == call.valid.device else torch.from_numpy(call.host_valid)
        # A label is dropped if the token before it is padding; column 0 predicts nothing anyway.
        labels = labels.masked_fill(functional.pad(~valid[:, :-1], (1, 0)), -100)
    call.labels = labels.to(call.input_ids.device)
    if labels.device.type == "cpu":  # the labelled tokens are known without waiting for a device
        written_from = label_follows(labels).flatten().nonzero()[:, 0]
        # The mean loss would be NaN, unless other processes or calls have labels.
        if call.training and call.spread is None and not step_labels and not written_from.numel():
            raise UsageError(
                "A loss is the mean over labels that follow a token, got labels of which none is left: all are -100, "
                "or each row has one token alone. Leave such a batch out, or give it labels."
            )
        call.written_from = written_from.to(call.input_ids.device)
    return share


def positions_to_keep(wanted: Tensor | int) -> tuple[Any, Any]:
    """An index into [B, S]: everything (0), the last n, positions [K] for all rows, or positions [B, K] per row."""
    if isinstance(wanted, int):
        return slice(None), slice(-wanted, None) if wanted else slice(None)
    # With positions per row, row numbers [B, 1] broadcast against them.
    return slice(None) if wanted.dim() == 1 else torch.arange(len(wanted), device=wanted.device)[:, None], wanted


def check_positions(given: Tensor, own: Tensor, valid: Tensor) -> None:
    """Refuse positions ([B, S] or [1, S]) that differ from the model's own [B, S] at real tokens."""
    if bool(((given.to(own.device) != own) & valid).any()):
        raise UsageError(
            "Positions count the real tokens of a row from 0, as attention_mask and the cache give them, got other "
            "position_ids (several texts packed into a row?). Leave position_ids out and give each text a row."
        )


# Arguments that would change how the model runs, with the value at which each changes nothing.
_REFUSED: dict[str, Any] = {
    **dict.fromkeys(("cache_implementation", "compile_config", "constraints", "custom_generate", "dola_layers")),
    **dict.fromkeys(("force_words_ids", "inputs_embeds", "negative_prompt_attention_mask", "negative_prompt_ids")),
    **dict.fromkeys(("past_key_values", "penalty_alpha", "position_ids", "prefill_chunk_size")),
    **dict.fromkeys(("prompt_lookup_num_tokens", "assistant_early_exit", "assistant_model", "assistant_tokenizer")),
    **dict.fromkeys(("output_attentions", "output_hidden_states", "synced_gpus", "token_healing"), False),
    **dict.fromkeys(("trust_remote_code", "use_mtp", "is_assistant"), False),
    **dict.fromkeys(("guidance_scale", "num_beams", "num_beam_groups"), 1),
}


def check_arguments(config: GenerationConfig | None, kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments of `generate` that the model does not support."""
    # A config's own defaults are nobody's wish: only what differs from them is checked.
    given = dict(kwargs) if config is None else config.to_diff_dict() | dict(kwargs)
    for name, neutral in _REFUSED.items():
        value = given.get(name)
        # A tensor cannot be compared with the neutral value in a condition, and none is neutral.
        if value is not None and (isinstance(value, Tensor) or value != neutral):
            what = f"{name}={value!r}" if isinstance(value, bool | int | float | str) else name
            raise UsageError(
                f"generate() of an adaptive model writes with decisions and a cache of its own, got "
                f"{what}, which it does not support. Leave {name} out, or generate with model.backbone_model."
            )
    ids = [given[name] for name in ("inputs", "input_ids") if given.get(name) is not None]
    for one in ids:
        check_ids(one)
    if ids and (mask := given.get("attention_mask")) is not None:
        check_mask(mask, ids[0])
