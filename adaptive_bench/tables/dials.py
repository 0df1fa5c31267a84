"""Reads the measured point of one dial value and one seed from an `answers.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from adaptive_bench.tables.crossed import Floats


@dataclass(frozen=True)
class DialPoint:
    """One dial value of one seed.

    Attributes:
        dial: Dial value in the method's own unit.
        asked: Share of token-branches that it was asked to skip; `None` if the run does not say.
        saved: Savings by name (see `saving_name`).
        times: Share of time saved, by setting.
        scores: By metric, one value per document, [D].
        seconds: Seconds that the evaluation took, if known.
    """

    dial: float
    asked: float | None
    saved: Mapping[str, float]
    times: Mapping[str, float]
    scores: Mapping[str, Floats]
    seconds: float | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> DialPoint:
        """Make a point from its plain values in an `answers.json`."""
        # The scores are a text of 0 and 1, or a list of numbers.
        scores = {metric: np.array([float(one) for one in found]) for metric, found in values["scores"].items()}
        about = (float(values["dial"]), values.get("asked"), values["saved"], values.get("times", {}))
        return cls(*about, scores, values.get("seconds"))
