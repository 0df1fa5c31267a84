"""Reads and checks lm-eval's generation arguments, by which a task says how text is generated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs
from transformers import PreTrainedTokenizerBase

from adaptive_bench.errors import UsageError, one_line

# lm-eval's own default for tasks that set no length.
DEFAULT_NEW_TOKENS = 256
_BROKEN = "\N{REPLACEMENT CHARACTER}"  # decoded from bytes that are no complete character


@dataclass(frozen=True)
class GenerationSettings:
    """Settings that requests must share to be generated in one batch: greedy unless `do_sample`, up to a string of
    `until`, which is not part of the text.
    """

    until: tuple[str, ...]
    max_new_tokens: int
    do_sample: bool = False
    temperature: float = 1.0
    top_p: float = 1.0

    @classmethod
    def read(cls, arguments: Mapping[str, Any], end: str = "") -> GenerationSettings:
        """Read lm-eval's generation arguments; what is invalid or not supported, such as beam search, is a
        `UsageError`.

        Args:
            end: The text of the end token. A model may spell it with other tokens; this ends the text too, as in
                lm-eval's own models.
        """
        try:
            known = dict(normalize_gen_kwargs(dict(arguments), DEFAULT_NEW_TOKENS))
            until = tuple(filter(None, handle_stop_sequences(known.pop("until"), end)))
            most = known.pop("max_gen_toks")
            do_sample = bool(known.pop("do_sample", False))
            # lm-eval gives 0 for greedy decoding, where the temperature is not used.
            temperature = float(known.pop("temperature", None) or 1.0)
            top_p = float(known.pop("top_p", 1.0))
            are_texts = all(isinstance(text, str) for text in until)
            if not (are_texts and type(most) is int and most > 0 and 0 < temperature < math.inf and 0 < top_p <= 1):
                raise ValueError
        except (TypeError, ValueError):
            raise UsageError(
                f"A task's generation_kwargs have texts as until, a whole number above 0 as max_gen_toks, a finite "
                f"temperature above 0 and a top_p above 0 and at most 1, got {one_line(repr(dict(arguments)), 200)}. "
                f"Correct its YAML file, or choose another task."
            ) from None
        # A single beam is greedy decoding, which some tasks spell out.
        if unknown := {key: value for key, value in known.items() if (key, value) != ("num_beams", 1)}:
            raise UsageError(
                f"Generation knows until, max_gen_toks, do_sample, temperature and top_p, "
                f"but the task asks for {unknown}. Choose another task."
            )
        return cls(until, most, do_sample, temperature, top_p)


def stop_after(until: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> Callable[[Sequence[int]], bool] | None:
    """A function that takes the tokens generated so far and says whether a stop string was just completed."""
    if not until:
        return None
    # A token has at least one byte, so a stop string that ends in the newest token spans at most as many tokens as it
    # has bytes. Two more tokens keep it away from the start, where some decoders drop a space.
    window = max(len(text.encode()) for text in until) + 2
    last_characters = {text[-1] for text in until}
    may_end: dict[int, bool] = {}

    def stop(token_ids: Sequence[int]) -> bool:
        newest = token_ids[-1]
        if newest not in may_end:
            # Most tokens do not contain the last character of a stop string; only for the others the text is decoded.
            # The token is decoded twice, since some decoders drop a space at the start. A broken character may be
            # completed by other tokens.
            spelled = tokenizer.decode([newest, newest])
            may_end[newest] = _BROKEN in spelled or not last_characters.isdisjoint(spelled)
        if not may_end[newest]:
            return False
        tail = tokenizer.decode(list(token_ids[-window:]))
        return any(text in tail for text in until)

    return stop


def cut_at(until: Sequence[str], text: str) -> str:
    """The text before the first stop string."""
    return text[: min((place for place in (text.find(stop) for stop in until) if place >= 0), default=len(text))]
