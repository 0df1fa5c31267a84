"""Defines what a check and its result are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from adaptive_bench.testing.subject import Subject

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
        name: One word.
        asserts: The property in one sentence.
        probe: Returns facts, or raises `Violation` or `NotApplicable`.
        needs: Checks without which this one means nothing: if one of them failed, this one does not apply.
        of_training: The check depends only on what is trained, so specs that are trained alike share its result.
        rounding: The check compares sums taken in different orders. Rounding may then flip a decision at a threshold,
            so a violation counts only if another text shows it as well.
    """

    name: str
    asserts: str
    probe: Callable[[Subject], Facts]
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
