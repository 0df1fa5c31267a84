"""Notices logits that are no numbers, which would otherwise be scored as wrong answers, and scores that are none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from adaptive_bench import stopping
from adaptive_bench.backbone.weights import plain_parts
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
        """The next token [B] from logits [B, V]. Texts take minutes to write: who is asked to stop does so here."""
        stopping.check()
        chosen = self._choose(logits)
        finite = logits.gather(1, chosen[:, None]).isfinite().all()
        self._finite = finite if self._finite is None else self._finite & finite
        return chosen

    def check(self, what: str, model: nn.Module) -> None:
        """Refuse what `model` wrote from such logits.

        Raises:
            NotFinite: Some were no numbers.
        """
        if self._finite is not None and not bool(self._finite):
            raise _not_finite(what, model)


def check_scores(scores: Iterable[float], what: str, model: nn.Module) -> None:
    """Refuse log-likelihoods of `model` that are no numbers. A text that it rules out has the log-likelihood -inf.

    Raises:
        NotFinite: There is one.
    """
    if any(math.isnan(score) or score == math.inf for score in scores):
        raise _not_finite(what, model)


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


def _not_finite(what: str, model: nn.Module) -> NotFinite:
    """The error, with what follows from whether the weights are numbers: it is looked at once something went wrong."""
    rule = f"A model must give finite logits, but gave NaN or infinity in {what}"
    if (weight := _not_a_number(model)) is not None:
        return NotFinite(
            f"{rule}: its weights are not finite themselves (the first: {weight}). If it was trained, the training "
            f"diverged: lower its rates, or train in fp32. If it was not, --model has these weights: copy or save that "
            f"model again, or name another one."
        )
    return NotFinite(
        f"{rule}, with finite weights. If it was trained and the losses in its train.jsonl grow towards the end, the "
        f"training diverged: lower its rates, or train in fp32. If a method is on it, look at what that scales "
        f"branches by: `adaptive-bench check` tries it. If neither is so, numbers grow too large in the model itself: "
        f"name another one."
    )


def _not_a_number(model: nn.Module) -> str | None:
    """The first weight with a NaN or an infinity. Buffers may have one: a threshold that nothing passes, say."""
    for name, weight in model.named_parameters():
        floats = [part for part in plain_parts(weight.detach()) if part.is_floating_point()]
        if not all(bool(part.isfinite().all()) for part in floats):
            return name
    return None
