"""What checks are written with: their definition, their results, and what they measure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.testing.subject import Subject, Text

Fact = bool | str
Facts = Mapping[str, Fact]
Status = Literal["passed", "failed", "not applicable"]


class Violation(Exception):
    """A method does not do what a check asserts. The message states the rule, what was found and the next step."""


class NotApplicable(Exception):
    """A check has nothing to assert here; the message is the reason, `facts` were found all the same."""

    def __init__(self, reason: str, **facts: Fact) -> None:
        super().__init__(reason)
        self.facts = facts


@dataclass(frozen=True)
class Result:
    """One check of one spec on one family.

    Attributes:
        message: What is wrong, or why the check does not apply; empty if it passed.
        facts: Facts about the method that the check found (see `capabilities.CAPABILITIES`).
        error: The error that the method's code raised, if any.
    """

    check: str
    spec: str
    family: str
    status: Status
    message: str = ""
    facts: Facts = field(default_factory=dict)
    error: Exception | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Check:
    """One property that every method must have.

    Attributes:
        needs: Checks without which this one means nothing: if one of them failed, this one does not apply.
        of_training: The check depends only on what is trained, so specs that are trained alike share its result.
        rounding: The check compares sums taken in different orders. Rounding may then flip a decision at a
            threshold, so a violation counts only if another text shows it as well.
    """

    name: str  # one word
    asserts: str  # the property in one sentence
    probe: Callable[[Subject], Facts]  # returns facts, or raises `Violation` or `NotApplicable`
    needs: tuple[str, ...] = ()
    of_training: bool = False
    rounding: bool = False


def check(
    name: str, *, needs: tuple[str, ...] = (), of_training: bool = False, rounding: bool = False
) -> Callable[[Callable[[Subject], Facts]], Check]:
    """Turns a function into a check; the first paragraph of its docstring is the sentence that it asserts."""

    def make(probe: Callable[[Subject], Facts]) -> Check:
        sentence = (inspect.getdoc(probe) or "").partition("\n\n")[0].replace("\n", " ")
        return Check(name, sentence, probe, needs, of_training, rounding)

    return make


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
