"""Arguments of Hugging Face's `generate`: what an adaptive model does not support, and what no argument may be.

Hugging Face's library looks at few of them, and at those only where they are used: it ignores `top_p=3.0`, and fails
somewhere inside for `num_beams=0`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from adaptive_bench.errors import UsageError
from adaptive_bench.model.forward_arguments import check_ids, check_mask
from adaptive_bench.validation import is_whole

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
Rule = tuple[str, Callable[[Any], bool]]


def _whole(least: int) -> Rule:
    return f"a whole number of at least {least}", lambda value: is_whole(value) and value >= least


def _number(words: str, holds: Callable[[float], bool]) -> Rule:
    return words, lambda value: _is_number(value) and holds(float(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


_SHARE = _number("a number from 0 to 1", lambda value: 0 <= value <= 1)
_POSITIVE = _number("a number above 0", lambda value: value > 0)
_CUTOFF = _number("a number from 0 up to but not 1", lambda value: 0 <= value < 1)
_ANY: Rule = ("a number", _is_number)
_TRUTH: Rule = ("True or False", lambda value: isinstance(value, bool))
_CALLABLE: Rule = ("a function", callable)
_CALLABLES: Rule = (
    "a list of functions",
    lambda value: isinstance(value, list | tuple) and all(map(callable, value)),
)
_TOKENS: Rule = (
    "a token id or a list of token ids",
    lambda value: all(map(is_whole, value.tolist() if isinstance(value, Tensor) else _listed(value))),
)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


# What each argument is, where it is given. `temperature` may be 0 where nothing is sampled, as lm-eval has it.
_RULES: dict[str, Rule] = {
    **dict.fromkeys(("max_new_tokens", "max_length", "num_beams", "num_return_sequences"), _whole(1)),
    **dict.fromkeys(("min_new_tokens", "min_length", "top_k", "no_repeat_ngram_size"), _whole(0)),
    **dict.fromkeys(("top_p", "typical_p", "min_p"), _SHARE),
    **dict.fromkeys(("epsilon_cutoff", "eta_cutoff"), _CUTOFF),
    **dict.fromkeys(("repetition_penalty", "max_time"), _POSITIVE),
    **dict.fromkeys(("do_sample", "use_cache", "return_dict_in_generate", "output_scores", "output_logits"), _TRUTH),
    **dict.fromkeys(("eos_token_id", "pad_token_id", "forced_bos_token_id", "forced_eos_token_id"), _TOKENS),
    "length_penalty": _ANY,
    "temperature": _number("a number above 0, or 0 without sampling", lambda value: value >= 0),
    "generation_config": ("a GenerationConfig", lambda value: isinstance(value, GenerationConfig)),
    "generator": ("a torch.Generator", lambda value: isinstance(value, torch.Generator)),
    "logits_processor": _CALLABLES,
    "stopping_criteria": _CALLABLES,
    "prefix_allowed_tokens_fn": _CALLABLE,
    "tokenizer": ("a tokenizer", callable),
    "streamer": ("a streamer with put() and end()", lambda value: hasattr(value, "put") and hasattr(value, "end")),
    "stop_strings": (
        "a text or a list of texts",
        lambda value: (
            isinstance(value, str) or (isinstance(value, list | tuple) and all(isinstance(one, str) for one in value))
        ),
    ),
}


def no_assistance(got: str) -> UsageError:
    """What refuses assisted generation: Hugging Face's loop crops a cache to what was accepted, and one whose layers
    hold other tokens each cannot be cropped so.
    """
    return UsageError(
        f"An adaptive model is neither the main model nor the assistant of assisted generation, whose loop crops the "
        f"caches of both, got {got}. Let the model draft for itself (self_speculate of "
        f"adaptive_bench.model.speculation, or `adaptive-bench speculate`), or generate with model.backbone_model."
    )


def check_settings(given: Mapping[str, Any]) -> None:
    """Refuse arguments of `generate` that are not what they have to be; `None` leaves one out.

    Raises:
        UsageError: With the rule of the first of them.
    """
    for name in filter(given.__contains__, _RULES):
        (rule, holds), value = _RULES[name], given[name]
        value = value.item() if isinstance(value, Tensor) and not value.ndim else value
        if value is not None and not holds(value):
            raise UsageError(f"{name} is {rule}, got {name}={value!r}. Correct it, or leave it out.")
    if given.get("do_sample") and given.get("temperature") == 0:
        raise UsageError("Sampling takes a temperature above 0, got temperature=0. Leave do_sample out to be greedy.")


def check_arguments(config: GenerationConfig | None, kwargs: Mapping[str, Any]) -> None:
    """Refuse what the model does not support, and what is not what it has to be.

    Args:
        config, kwargs: As `generate` was given them, `inputs` among the keywords.

    Raises:
        UsageError: With the name of the argument.
    """
    check_settings({"generation_config": config})
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
    check_settings(given)
    ids = [given[name] for name in ("inputs", "input_ids") if given.get(name) is not None]
    for one in ids:
        check_ids(one)
    if ids and (mask := given.get("attention_mask")) is not None:
        check_mask(mask, ids[0])
