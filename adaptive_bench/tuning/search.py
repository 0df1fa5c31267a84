"""Searches the best values of one method with Optuna: given points come first, then what its sampler draws.

Trials are trained side by side, measured on validation documents, and compared by an objective: one number from the
points that were measured.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from math import inf, isfinite
from statistics import fmean
from typing import Any

import optuna
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage
from optuna.trial import TrialState

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.jobs.job import Failure
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.launching import carry_out
from adaptive_bench.runs.run_plan import Plan, plan
from adaptive_bench.runs.work_units import DialEvaluation
from adaptive_bench.store.evaluation import saving_name
from adaptive_bench.store.measured import MeasuredPoint
from adaptive_bench.tables import matching
from adaptive_bench.task import metric_of
from adaptive_bench.tuning.result import EVALUATION, TRAINING, TrialResult
from adaptive_bench.tuning.space import METHOD_RATE, Space, Values, recipe_values

Proposal = Mapping[str, Any]  # values as Optuna has them; empty for the method's defaults
REACHED = 0.02  # a level counts as reached if the measured saving is at most this much smaller
SPREAD = 4  # points that cover the space evenly, after the defaults


@dataclass(frozen=True)
class Objective:
    """One of two numbers, which are both better when larger: the score at the saving `at`, or without one (`area`) the
    mean score over the levels of the run.

    Scores of metrics for which lower is better get a minus sign. A saving that is not reached counts as score 0, or as
    minus infinity for such metrics.
    """

    at: float | None = None

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read `area` or `score@0.15`; any other text is a `UsageError`."""
        kind, _, number = text.strip().partition("@")
        if text.strip() == "area":
            return cls()
        with suppress(ValueError):  # `score` or `score@` without a number too
            if kind == "score" and 0 <= float(number) < 1:
                return cls(float(number))
        raise UsageError(f"The objective is area or score@SAVING (score@0.15: the score at 15 % saved), got {text!r}.")

    def __str__(self) -> str:
        return "area" if self.at is None else f"score@{self.at:g}"

    def config(self, config: RunConfig) -> RunConfig:
        """The run's config with the levels at which trials are compared."""
        return config if self.at is None else config.model_copy(update={"levels": (self.at,)})

    def check(self, metrics: Iterable[str]) -> None:
        """Refuse (`UsageError`) metrics of unknown direction or of different ones, whose mean makes no sense."""
        better = {metric: metric_of(metric).better for metric in metrics}
        if "unknown" in better.values() or len(set(better.values())) > 1:
            told = ", ".join(f"{metric}: {which}" for metric, which in better.items())
            raise UsageError(
                f"The objective is a mean over tasks, so their first metrics must be better in one direction, got "
                f"{told}. Leave out the tasks of one direction."
            )

    def value(self, points: Sequence[MeasuredPoint], levels: Sequence[float], name: str, metric: str) -> float:
        """The objective of one sweep, by the saving of this name (`saving_name`) and the task's headline metric."""
        sign, worst = (-1.0, -inf) if metric_of(metric).better == "lower" else (1.0, 0.0)
        found = [nearest(points, level, name) for level in levels]
        return fmean(worst if place is None else sign * points[place].scores[metric] for place in found)


def nearest(points: Sequence[MeasuredPoint], level: float, name: str) -> int | None:
    """Place of the measured point nearest to a level; `None` if that point saves clearly less than the level."""
    place = matching.nearest([point.savings.get(name) for point in points], level)
    # A level of 0 is always reached, even if gates cost more than nothing and the measured saving is negative.
    return None if place is None or level > max(0.0, points[place].savings[name] + REACHED) else place


@dataclass(eq=False)
class Trial:
    """A trial that was begun: its values (none for the method's defaults), and its sweeps once they are measured."""

    search: Search
    asked: optuna.Trial
    values: Values
    measured: list[DialEvaluation] = field(default_factory=list)

    def end(self, state: TrialState, value: float | None = None, *, called: str | None = None, **about: Any) -> None:
        """Tell Optuna how the trial ended, and keep its result with `about`, further fields of `TrialResult`; `called`
        is the result's name of the state, if not Optuna's.
        """
        self.search.study.tell(self.asked, value, state)
        result = TrialResult(
            method=str(self.search.space.spec),
            number=self.asked.number,
            state=called or state.name.lower(),
            values=dict(self.values),
            spec=str(self.search.space.spec_with(self.values)),
            rates=recipe_values(self.values),
            method_rate=float(self.values[METHOD_RATE]) if METHOD_RATE in self.values else None,
            value=value,
            **about,
        )
        self.search.results.append(result)
        ended = result.state + ("" if value is None else f" {value:.4f}") + (result.reason and f" ({result.reason})")
        place = f"{result.method}: trial {len(self.search.results)}"
        self.search.reporter.line(f"{place} with {result.values_text}: {ended}")


class Search:
    """The trials of one method.

    The search itself reads nothing from disk. A sampler with a fixed seed that is told the same values draws the same
    points, so a search that is repeated finds its trainings and scores done.

    Args:
        name: Name of the Optuna study; it seeds the sampler.
        trials: Number of trials.
        points: Points to try first; by default the method's defaults, then points that cover the space evenly.
    """

    def __init__(
        self,
        name: str,
        space: Space,
        config: RunConfig,
        storage: BaseStorage,
        reporter: Reporter,
        trials: int,
        points: Iterable[Proposal] | None = None,
    ) -> None:
        self.space, self.config, self.reporter, self._left = space, config, reporter, trials
        self.results: list[TrialResult] = []  # in the order in which they ended
        self.exhausted = False  # whether the space has no further values that make a trial of their own
        self.begun: dict[int, Trial] = {}  # trials that count, by number
        # Not `hash`, which differs from process to process; four bytes, as in NumPy's seeds.
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
        self.study = optuna.create_study(
            study_name=name,
            storage=storage,
            direction="maximize",
            sampler=TPESampler(n_startup_trials=SPREAD, seed=seed),
        )
        if points is None:
            points = [{}, *islice(space.accepted(config, {0: {}}), SPREAD)]  # `{0: {}}`: the defaults are trial 0
        self._given = list(points)

    @property
    def complete(self) -> list[TrialResult]:
        """The complete trials."""
        return [trial for trial in self.results if trial.state == "complete"]

    @property
    def best(self) -> TrialResult | None:
        """The complete trial with the highest value; the first one of a tie."""
        return max(self.complete, key=lambda trial: trial.value or 0.0, default=None)

    def ask(self) -> list[Trial]:
        """The trials to do next: all that do not depend on results, else one; none once the search is over."""
        asked = []
        # Given points do not depend on results, so they are trained side by side.
        while self._given and self._left:
            asked.append(self._begin(self._given.pop(0)))
        if not asked and self._left and not self.exhausted:
            asked = self._drawn()
        return asked

    def _begin(self, point: Proposal) -> Trial:
        # Optuna gives an enqueued point to the next `ask`, and its values to `draw`. For the defaults nothing is drawn.
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
        drawn.end(TrialState.FAIL, called="refused", reason=reason)  # so that the sampler does not learn from it
        point = next(self.space.accepted(self.config, self._tried()), None)
        self.exhausted = point is None
        return [] if point is None else [self._begin(point)]

    def _tried(self) -> dict[int, Values]:
        return {number: trial.values for number, trial in self.begun.items()}

    def _count(self, begun: Trial) -> None:
        self.begun[begun.asked.number] = begun
        self._left -= 1


class TrialRunner:
    """Trains and measures trials with the recipe, tasks and seeds of a run."""

    def __init__(self, objective: Objective, config: RunConfig, reporter: Reporter, jobs: int | None = None) -> None:
        self.objective, self.config, self.reporter, self.jobs = objective, objective.config(config), reporter, jobs

    def do(self, trials: Sequence[Trial]) -> None:
        """Train and measure trials, and tell their searches how they ended; what the machine is to blame for, such as a
        full disk, is raised as an `EnvironmentProblem`.
        """
        plans = {trial: whole for trial in trials if (whole := self._plan(trial)) is not None}
        for trial, whole in self._measured(plans).items():
            trial.measured += whole.sweeps
            self._end(trial)

    def _plan(self, trial: Trial) -> Plan | None:
        try:
            return plan(trial.search.space.config_with(trial.values, self.config), splits=("validation",))
        except UsageError as error:  # caused by these values, because the study itself was checked
            trial.end(TrialState.FAIL, reason=str(error))
            return None

    def _measured(self, plans: Mapping[Trial, Plan]) -> dict[Trial, Plan]:
        """Do what is not on disk, with plans of one recipe side by side; returns those whose sweeps are finished."""
        together: defaultdict[str, list[Plan]] = defaultdict(list)
        for whole in plans.values():
            # A plan has one config. Rates by method may differ, since each training's content holds its own.
            together[whole.config.train.model_dump_json(exclude={"method_learning_rates"})].append(whole)
        failures: list[Failure] = []
        for group in together.values():
            # Equal trainings and sweeps of several trials have one folder, so they are done once.
            trainings = {one.folder: one for whole in group for one in whole.trainings}
            sweeps = {one.folder: one for whole in group for one in whole.sweeps}
            merged = Plan(group[0].config, tuple(trainings.values()), tuple(sweeps.values()))
            failures += carry_out(merged, self.reporter, self.jobs)
        # The values are not to blame, so no trial fails; the same command tries again.
        if outside := [failure for failure in failures if failure.kind == EnvironmentProblem.kind]:
            raise EnvironmentProblem("; ".join(f"{failure.work}: {failure.reason}" for failure in outside))
        finished = {}
        for trial, whole in plans.items():
            if missing := [sweep for sweep in whole.sweeps if sweep.finished() is None]:
                # A failure belongs to every trial that needs the work: its sweeps, trainings, and what they start from.
                works = {str(work) for sweep in whole.sweeps for work in (sweep, *sweep.training.chain)}
                own = [str(failure) for failure in failures if failure.work in works]
                trial.end(TrialState.FAIL, reason="; ".join(own) or f"{missing[0]} was not finished.")
            else:
                finished[trial] = whole
        return finished

    def _end(self, trial: Trial) -> None:
        value = fmean(
            self.objective.value(points_of(one), one.levels, _axis(one), one.metric) for one in trial.measured
        )
        if not isfinite(value):  # a level is not reached, with a metric for which lower is better
            trial.end(TrialState.FAIL, reason="it does not reach the savings that trials are compared at")
            return
        trial.end(TrialState.COMPLETE, value, seconds=_seconds(trial.measured))


def points_of(sweep: DialEvaluation) -> list[MeasuredPoint]:
    """The measured points of a finished sweep, with scores in its headline metric."""
    found, record = sweep.finished() or {}, sweep.record
    return [MeasuredPoint.of(asked, one, [sweep.metric], record.samples(asked)) for asked, one in found.items()]


def _axis(sweep: DialEvaluation) -> str:
    return saving_name(sweep.config.match_on, sweep.config.match_phase)


def _seconds(sweeps: Sequence[DialEvaluation]) -> dict[str, float]:
    """Seconds of training and measuring, from the records; a training that trials share counts in each of them."""
    trainings = {training.folder: training for sweep in sweeps for training in sweep.training.chain}
    records = [sweep.record for sweep in sweeps]
    return {
        TRAINING: sum((one.record.read("timing") or {}).get("train_s", 0.0) for one in trainings.values()),
        EVALUATION: sum(record.measuring_s(saving) for record in records for saving in record.savings()),
    }
