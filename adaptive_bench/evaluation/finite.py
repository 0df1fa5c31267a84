"""Notices logits that are no numbers, which would otherwise be scored as wrong answers, and scores that are none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from torch import Tensor

from adaptive_bench.errors import NotFinite
from adaptive_bench.model.generation import Choose


class Watched:
    """Chooses tokens as another rule does, and remembers on the device whether a chosen logit was no number.

    The likeliest of logits with a NaN among them is the NaN, so looking at what was chosen is enough.
    """

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._finite: Tensor | None = None

    def __call__(self, logits: Tensor) -> Tensor:
        """The next token [B] from logits [B, V]."""
        chosen = self._choose(logits)
        finite = logits.gather(1, chosen[:, None]).isfinite().all()
        self._finite = finite if self._finite is None else self._finite & finite
        return chosen

    def check(self, what: str) -> None:
        """Refuse what was written from such logits.

        Raises:
            NotFinite: Some were no numbers.
        """
        if self._finite is not None and not bool(self._finite):
            raise _not_finite(what)


def check_scores(scores: Iterable[float], what: str) -> None:
    """Refuse log-likelihoods that are no numbers. A text that the model rules out has the log-likelihood -inf.

    Raises:
        NotFinite: There is one.
    """
    if any(math.isnan(score) or score == math.inf for score in scores):
        raise _not_finite(what)


def check_metrics(values: Mapping[str, float], what: str) -> None:
    """Refuse values of metrics that are no numbers, which a metric or an aggregation of a task may give.

    Raises:
        NotFinite: There is one.
    """
    for name, value in values.items():
        if not math.isfinite(value):
            raise NotFinite(
                f"A score is a finite number, but {name!r} of {what} is {value}. Correct the metric and its "
                f"aggregation in the task's files."
            )


def _not_finite(what: str) -> NotFinite:
    return NotFinite(
        f"A model must give finite logits, but gave NaN or infinity in {what}. If the losses in its train.jsonl grow "
        f"towards the end, the training diverged: lower its rates, or train in fp32. If they do not, look at what the "
        f"method scales branches by: `adaptive-bench check` tries it."
    )
