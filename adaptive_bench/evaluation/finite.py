"""Detects logits and scores that are not finite; such logits would otherwise count as wrong answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from adaptive_bench import stopping
from adaptive_bench.backbone.weights import plain_parts
from adaptive_bench.errors import NotFinite
from adaptive_bench.model.generation import Choose


class Watched:
    """Chooses tokens by another rule, and remembers on the device whether a chosen logit was not finite.

    Checking the chosen logits is enough, since argmax returns a NaN if there is one.
    """

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._finite: Tensor | None = None

    def __call__(self, logits: Tensor) -> Tensor:
        """The next token [B] from logits [B, V]. Requests to stop are checked here too, since texts take minutes."""
        stopping.check()
        chosen = self._choose(logits)
        # [B, V] at [B, 1]. Kept on the device: reading it for every token would make the GPU wait.
        finite = logits.gather(1, chosen[:, None]).isfinite().all()
        self._finite = finite if self._finite is None else self._finite & finite
        return chosen

    def check(self, what: str, model: nn.Module) -> None:
        """Raise `NotFinite` if any chosen logit of the model was NaN or infinite."""
        if self._finite is not None and not bool(self._finite):
            raise _not_finite(what, model)


def check_scores(scores: Iterable[float], what: str, model: nn.Module) -> None:
    """Refuse (`NotFinite`) log-likelihoods that are NaN or +inf. -inf is valid: the model rules out the text."""
    # A NaN among the logits of a scored position makes its log-softmax NaN, and with it the sum.
    if any(math.isnan(score) or score == math.inf for score in scores):
        raise _not_finite(what, model)


def check_metrics(values: Mapping[str, float], what: str) -> None:
    """Refuse (`NotFinite`) metric values that a task's metric or aggregation gives and that are not finite."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise NotFinite(
                f"A score is a finite number, but {name!r} of {what} is {value}. Correct the metric and its "
                f"aggregation in the task's files."
            )


def _not_finite(what: str, model: nn.Module) -> NotFinite:
    """The error, with advice that depends on whether the weights are finite, which is checked only now."""
    rule = f"A model must give finite logits, but gave NaN or infinity in {what}"
    # Buffers are not checked: they may hold infinite thresholds.
    for name, weight in model.named_parameters():
        if not all(bool(part.isfinite().all()) for part in plain_parts(weight.detach()) if part.is_floating_point()):
            return NotFinite(
                f"{rule}: its weights are not finite themselves (the first: {name}). If it was trained, the training "
                f"diverged: lower its rates, or train in fp32. If it was not, --model has these weights: name another."
            )
    return NotFinite(
        f"{rule}, with finite weights. If it was trained and the losses in its train.jsonl grow towards the end, lower "
        f"its rates, or train in fp32. Otherwise look at what its method scales branches by (`adaptive-bench check`)."
    )
