"""The trials of one method as a study of Optuna: given points first, then what its sampler draws."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import optuna
from optuna.pruners import BasePruner, MedianPruner
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage
from optuna.trial import TrialState

from adaptive_bench.config import RunConfig
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.tuning.result import TrialResult
from adaptive_bench.tuning.space import METHOD_RATE, Space, Values, recipe_values

Point = Mapping[str, Any]  # values as Optuna has them; of the method as it is none
SPREAD = 4  # points that cover the space evenly, after the method as it is
PRUNE_AFTER = 4  # complete trials that a median is taken of


@dataclass(eq=False)
class Trial:
    """A trial that was begun.

    Attributes:
        values: As a spec writes them; nothing for the method as it is.
        measured: By what it was measured so far.
        scores: The objective of each of those.
    """

    search: Search
    asked: optuna.Trial
    values: Values
    measured: list[DialEvaluation] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    is_over: bool = False

    def end(self, state: TrialState, value: float | None = None, **about: Any) -> None:
        """Tell Optuna how it ended, and keep it; `about` are further fields of `TrialResult`."""
        self.is_over = True
        self.search.study.tell(self.asked, value if state is TrialState.COMPLETE else None, state)
        self.search.results.append(
            TrialResult(
                method=str(self.search.space.spec),
                number=self.asked.number,
                state=state.name.lower(),
                values=dict(self.values),
                spec=str(self.search.space.spec_with(self.values)),
                rates=recipe_values(self.values),
                method_rate=float(self.values[METHOD_RATE]) if METHOD_RATE in self.values else None,
                value=value,
                **about,
            )
        )

    def refuse(self, reason: str) -> None:
        """It is none of its own: it is listed and does not count."""
        self.end(TrialState.FAIL, reason=reason)
        self.search.results[-1] = replace(self.search.results[-1], state="refused")


class Search:
    """The trials of one method. Nothing of it is read from disk: a sampler with a fixed seed that is told the same
    values draws the same points, and what they were trained and scored for is found done.

    Args:
        name: Of the Optuna study; with the values it decides what is drawn.
        trials: How many are tried beside `grow`.
        points: What is tried first; by default the method as it is, then points that cover the space evenly.
        grow: Asked for one more point whenever nothing is left to try.

    Attributes:
        results: Trials that are over, in the order they ended.
        begun: By number those that were begun and count.
        exhausted: No further values of the space were found that are a method of their own.
    """

    def __init__(
        self,
        name: str,
        space: Space,
        config: RunConfig,
        storage: BaseStorage,
        trials: int,
        points: Iterable[Point] | None = None,
        grow: Callable[[Search], Point | None] | None = None,
        pruner: BasePruner | None = None,
    ) -> None:
        self.space, self.config, self._left, self._grow = space, config, trials, grow
        self.results: list[TrialResult] = []
        self.exhausted = False
        self.begun: dict[int, Trial] = {}
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
        self.study = optuna.create_study(
            study_name=name,
            storage=storage,
            direction="maximize",
            sampler=TPESampler(n_startup_trials=SPREAD, seed=seed),
            pruner=pruner or MedianPruner(PRUNE_AFTER),
        )
        if points is None:
            points = [{}, *islice(space.accepted(config, {0: {}}), SPREAD)]
        self._given = list(points)

    @property
    def complete(self) -> list[TrialResult]:
        """The trials with a value of their own."""
        return [trial for trial in self.results if trial.state == "complete"]

    @property
    def best(self) -> TrialResult | None:
        """The complete trial with the highest value, of equal ones the first."""
        return max(self.complete, key=lambda trial: trial.value or 0.0, default=None)

    @property
    def prunes(self) -> bool:
        """Whether a trial that falls behind is stopped by now."""
        return len(self.complete) >= PRUNE_AFTER and isinstance(self.study.pruner, MedianPruner)

    def ask(self) -> list[Trial]:
        """What to try next: all that hangs on no result, else one trial; nothing once the search is over."""
        asked = []
        while self._given and self._left:
            asked.append(self._begin(self._given.pop(0)))
        if not asked and self._left and not self.exhausted:
            asked = self._drawn()
        if not asked and self._grow is not None and (point := self._grow(self)) is not None:
            self._left += 1
            asked = [self._begin(point)]
        return asked

    def _begin(self, point: Point) -> Trial:
        self.study.enqueue_trial(dict(point))
        trial = self.study.ask()
        begun = Trial(self, trial, self.space.draw(trial) if point else {})
        self._count(begun)
        return begun

    def _drawn(self) -> list[Trial]:
        trial = self.study.ask()
        drawn = Trial(self, trial, self.space.draw(trial))
        reason = self.space.refusal(drawn.values, self._tried(), self.config)
        if reason is None:
            self._count(drawn)
            return [drawn]
        drawn.refuse(reason)
        point = next(self.space.accepted(self.config, self._tried()), None)
        self.exhausted = point is None
        return [] if point is None else [self._begin(point)]

    def _tried(self) -> dict[int, Values]:
        return {number: trial.values for number, trial in self.begun.items()}

    def _count(self, begun: Trial) -> None:
        self.begun[begun.asked.number] = begun
        self._left -= 1
