"""Arguments of `forward` and of Hugging Face's `generate`: what an adaptive model cannot honour, or would misread, is
refused.
"""

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
from adaptive_bench.method import Method
from adaptive_bench.method.call import label_follows


def refuse_unsupported(
    method: Method, inputs_embeds: Any, output_attentions: bool | None, hidden_states: bool | None
) -> None:
    """Refuse what would be computed wrongly or left out in silence."""
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
    """Refuse what are no token ids [B, S], such as a text."""
    if not isinstance(ids, Tensor) or ids.dim() != 2 or not ids.numel():
        got = f"the shape {list(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
        raise UsageError(
            f"input_ids are a tensor [rows, tokens] of token ids with one token at least, got {got}. "
            f"Give those of tokenizer(texts, return_tensors='pt')."
        )


def check_mask(mask: Tensor, ids: Tensor, cache: AdaptiveCache | None = None) -> None:
    """Refuse an attention mask that is not of the tokens [B, S], or of them and those that a cache holds."""
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
    """Refuse a cache of another kind, which Hugging Face's own are, or of other rows than the tokens' [B, S]."""
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
    """Refuse to train on labels of which none counts: their mean would be no number."""
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
    """Refuse positions ([B, S] or [1, S]) that are not the model's own [B, S] where there are real tokens."""
    if bool(((given.to(own.device) != own) & valid).any()):
        raise UsageError(
            "Positions count the real tokens of a row from 0, as attention_mask and the cache give them, got other "
            "position_ids (several texts packed into a row?). Leave position_ids out and give each text a row."
        )


# Arguments that would change how the model runs, and the value at which each changes nothing.
_REFUSED: dict[str, Any] = {
    "assistant_early_exit": None,
    "assistant_model": None,
    "assistant_tokenizer": None,
    "cache_implementation": None,
    "compile_config": None,
    "constraints": None,
    "custom_generate": None,
    "dola_layers": None,
    "force_words_ids": None,
    "guidance_scale": 1,
    "inputs_embeds": None,
    "is_assistant": False,
    "negative_prompt_attention_mask": None,
    "negative_prompt_ids": None,
    "num_beam_groups": 1,
    "output_attentions": False,
    "output_hidden_states": False,
    "past_key_values": None,
    "penalty_alpha": None,
    "position_ids": None,
    "prefill_chunk_size": None,
    "prompt_lookup_num_tokens": None,
    "synced_gpus": False,
    "token_healing": False,
    "trust_remote_code": False,
    "use_mtp": False,
}
_DRAFTS = ("assistant_early_exit", "assistant_model", "assistant_tokenizer", "is_assistant")


def no_assistance(got: str) -> UsageError:
    """What refuses assisted generation: Hugging Face's loop crops a cache to what was accepted, and one whose layers
    hold other tokens each cannot be cropped so.
    """
    return UsageError(
        f"An adaptive model is neither the main model nor the assistant of assisted generation, whose loop crops the "
        f"caches of both, got {got}. Let the model draft for itself (`adaptive-bench speculate`, or self_speculate of "
        f"adaptive_bench.model.speculative_decoding), or generate with model.backbone_model."
    )


def check_arguments(config: GenerationConfig | None, kwargs: Mapping[str, Any]) -> None:
    """Refuse what the model does not support."""
    given = dict(kwargs) if config is None else config.to_diff_dict() | dict(kwargs)
    for name, neutral in _REFUSED.items():
        value = given.get(name)
        if value is not None and (isinstance(value, Tensor) or value != neutral):
            if name in _DRAFTS:
                raise no_assistance(name)
            what = f"{name}={value!r}" if isinstance(value, bool | int | float | str) else name
            raise UsageError(
                f"generate() of an adaptive model writes with decisions and a cache of its own, got "
                f"{what}, which it does not support. Leave {name} out."
            )
    ids = [given[name] for name in ("inputs", "input_ids") if given.get(name) is not None]
    for one in ids:
        check_ids(one)
    if ids and (mask := given.get("attention_mask")) is not None:
        check_mask(mask, ids[0])
