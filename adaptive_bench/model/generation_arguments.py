"""Arguments of Hugging Face's `generate` that an adaptive model does not support."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import GenerationConfig

from adaptive_bench.errors import UsageError
from adaptive_bench.model.forward_arguments import check_ids, check_mask

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
        f"caches of both, got {got}. Let the model draft for itself (self_speculate of "
        f"adaptive_bench.model.speculation, or `adaptive-bench speculate`), or generate with model.backbone_model."
    )


def check_arguments(config: GenerationConfig | None, kwargs: Mapping[str, Any]) -> None:
    """Refuse what the model does not support.

    Args:
        config, kwargs: As `generate` was given them, `inputs` among the keywords.

    Raises:
        UsageError: With the name of the argument.
    """
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
