"""Trials side by side: trained, measured on validation documents, and told apart by an objective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from statistics import fmean

from optuna.trial import TrialState

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.planning.plan import Plan, plan
from adaptive_bench.runs.planning.training_targets import levels_of
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.runs.work.carry_out import carry_out
from adaptive_bench.store.savings import Point, saving_name
from adaptive_bench.tables.points import point_of
from adaptive_bench.tuning.objective import REACHED, Objective, nearest
from adaptive_bench.tuning.result import EVALUATION, TRAINING
from adaptive_bench.tuning.search import Search, Trial


class Measuring:
    """Makes trials into results.

    Args:
        config: The run whose recipe, tasks and seeds are used.
        jobs: Processes to use; see `carry_out`.

    Attributes:
        levels: By method, and by what its trials are trained towards, the saving at which they are compared where the
            objective is `score@target`: what they are trained towards; where one of the first of them does not get
            there on some task, the largest level of the run that all of those get beyond (of none, the largest saving
            that all of them reach). At the end of a dial nothing is left for what was trained to decide.
    """

    def __init__(self, objective: Objective, config: RunConfig, reporter: Reporter, jobs: int | None = None) -> None:
        self.objective, self.config, self.reporter, self.jobs = objective, objective.config(config), reporter, jobs
        self.levels: dict[Search, dict[float, float]] = {}
        self._of_run = levels_of(config)
        self._dense: dict[tuple[int, str], float] = {}

    def do(self, trials: Sequence[Trial]) -> None:
        """Train and measure trials and tell their searches how they ended. Where a search prunes, seed by seed.

        Raises:
            EnvironmentProblem: The surroundings are to blame, a full disk say, and not what is tried.
        """
        plans = {trial: whole for trial in trials if (whole := self._plan(trial)) is not None}
        prunes = any(trial.search.prunes for trial in plans)
        turns = [(seed,) for seed in self.config.seeds] if prunes else [self.config.seeds]
        for number, seeds in enumerate(turns, 1):
            wanted = {
                trial: [one for one in whole.sweeps if one.training.seed in seeds] for trial, whole in plans.items()
            }
            failures = self._carry_out([(plans[trial], sweeps) for trial, sweeps in wanted.items()])
            wanted = {trial: sweeps for trial, sweeps in wanted.items() if self._is_measured(trial, sweeps, failures)}
            if self._settle_levels(wanted):  # somebody is compared at another saving than was measured
                plans = {trial: self._settled(trial, whole) for trial, whole in plans.items()}
                wanted = {trial: [one for one in plans[trial].sweeps if one.training.seed in seeds] for trial in wanted}
                failures = self._carry_out([(plans[trial], sweeps) for trial, sweeps in wanted.items()])
                wanted = {trial: some for trial, some in wanted.items() if self._is_measured(trial, some, failures)}
            for trial, sweeps in wanted.items():
                trial.measured += sweeps
                trial.scores += [self._value(sweep) for sweep in sweeps]
                value = fmean(trial.scores)
                trial.asked.report(value, number)
                if number == len(turns):
                    self._end(trial, value)
                elif trial.search.prunes and trial.asked.should_prune():
                    self._end(trial, value, f"pruned: below the median at seed {number}")
            plans = {trial: whole for trial, whole in plans.items() if not trial.is_over}

    def _plan(self, trial: Trial) -> Plan | None:
        try:
            whole = plan(trial.search.space.config_with(trial.values, self.config), splits=("validation",))
        except UsageError as error:  # of these values: the study itself was checked
            trial.end(TrialState.FAIL, reason=str(error))
            return None
        return self._settled(trial, whole)

    def _settled(self, trial: Trial, whole: Plan) -> Plan:
        """The plan of a trial with the savings at which trials of its method are compared."""
        if self.objective.kind != "target":
            return whole
        known = self.levels.get(trial.search, {})
        sweeps = (replace(one, levels=(known.get(_target(one), _target(one)),)) for one in whole.sweeps)
        return replace(whole, sweeps=tuple(sweeps))

    def _carry_out(self, wanted: Sequence[tuple[Plan, Sequence[DialEvaluation]]]) -> list[Failure]:
        """Do sweeps of plans that are not on disk, with all trainings they need; plans of one recipe side by side."""
        together: defaultdict[str, list[tuple[Plan, Sequence[DialEvaluation]]]] = defaultdict(list)
        for whole, sweeps in wanted:
            together[whole.config.train.model_dump_json(exclude={"method_learning_rates"})].append((whole, sweeps))
        failures: list[Failure] = []
        for group in together.values():
            asked = {sweep.folder: sweep for _, sweeps in group for sweep in sweeps}
            chain = {one.folder for sweep in asked.values() for one in sweep.training.chain}
            trainings = {one.folder: one for whole, _ in group for one in whole.trainings if one.folder in chain}
            merged = Plan(group[0][0].config, tuple(trainings.values()), tuple(asked.values()))
            failures += carry_out(merged, self.reporter, self.jobs)
        if outside := [failure for failure in failures if failure.kind == EnvironmentProblem.kind]:
            raise EnvironmentProblem("; ".join(f"{failure.work}: {failure.reason}" for failure in outside))
        return failures

    def _is_measured(self, trial: Trial, sweeps: Sequence[DialEvaluation], failures: Sequence[Failure]) -> bool:
        if missing := [sweep for sweep in sweeps if sweep.finished() is None]:
            works = {str(work) for sweep in sweeps for work in (sweep, *sweep.training.chain)}
            own = [str(failure) for failure in failures if failure.work in works]
            trial.end(TrialState.FAIL, reason="; ".join(own) or f"{missing[0]} was not finished.")
        return not missing

    def _settle_levels(self, measured: Mapping[Trial, Sequence[DialEvaluation]]) -> bool:
        """Find the savings that trials are compared at, of methods whose first trials these are; later ones do not move
        them. Says whether one of them is other than what was trained towards.
        """
        if self.objective.kind != "target":
            return False
        moved = False
        for search in {trial.search: None for trial in measured if trial.search not in self.levels}:
            by_target: defaultdict[float, list[float]] = defaultdict(list)
            for sweep in (sweep for trial, some in measured.items() if trial.search is search for sweep in some):
                known = [point.at(_axis(sweep)) for point in points_of(sweep) if point.on(_axis(sweep))]
                by_target[_target(sweep)].append(max(known, default=0.0))
            self.levels[search] = {}
            for target, reached in by_target.items():
                below = max((level for level in self._of_run if 0 < level < min(reached)), default=min(reached))
                self.levels[search][target] = target if min(reached) >= target - REACHED else below
                moved |= self.levels[search][target] != target
        return moved

    def _value(self, sweep: DialEvaluation) -> float:
        dense = self._dense_score(sweep) if self.objective.needs_dense else None
        return self.objective.value(points_of(sweep), sweep.levels, _axis(sweep), sweep.metric, dense)

    def _dense_score(self, sweep: DialEvaluation) -> float:
        """Score of the dense model that was trained with the same recipe and seed."""
        if not self._dense:
            whole = plan(self.config.model_copy(update={"methods": ("dense",)}), splits=("validation",))
            failures = self._carry_out([(whole, whole.sweeps)])
            if failures:
                raise EnvironmentProblem(f"Trials are compared with the dense model, but {failures[0]}")
            self._dense = {(one.training.seed, one.task): points_of(one)[0].score for one in whole.sweeps}
        return self._dense[sweep.training.seed, sweep.task]

    def _end(self, trial: Trial, value: float, pruned: str = "") -> None:
        if not isfinite(value):  # of scores of which lower ones are better
            trial.end(TrialState.FAIL, reason="it does not reach the savings that trials are compared at")
            return
        curve: dict[str, list[float | None]] = {}
        for task in dict.fromkeys(sweep.task for sweep in trial.measured):
            of_task = [sweep for sweep in trial.measured if sweep.task == task]
            levels = sorted({level for sweep in of_task for level in sweep.levels})
            scores = {level: [_score(one, level) for one in of_task if level in one.levels] for level in levels}
            curve[task] = [None if None in some else fmean(one or 0.0 for one in some) for some in scores.values()]
        state = TrialState.PRUNED if pruned else TrialState.COMPLETE
        trial.end(state, value, reason=pruned, curve=curve, seconds=_seconds(trial.measured))


def points_of(sweep: DialEvaluation) -> list[Point]:
    """The measured points of a finished sweep."""
    return [point_of(one, sweep.metric, sweep.matched_curve) for one in (sweep.finished() or {}).values()]


def _score(sweep: DialEvaluation, level: float) -> float | None:
    points = points_of(sweep)
    place = nearest(points, level, _axis(sweep))
    return None if place is None else points[place].score


def _target(sweep: DialEvaluation) -> float:
    """What its training is trained towards."""
    return float(sweep.training.content["target"]["saving"])


def _axis(sweep: DialEvaluation) -> str:
    return saving_name(sweep.config.match_on, sweep.config.match_phase)


def _seconds(sweeps: Sequence[DialEvaluation]) -> dict[str, float]:
    """What training and measuring took, from the records; a training that trials share is in each of them."""
    trainings = {training.folder: training for sweep in sweeps for training in sweep.training.chain}
    records = [sweep.record for sweep in sweeps]
    return {
        TRAINING: sum((one.record.read("timing") or {}).get("train_s", 0.0) for one in trainings.values()),
        EVALUATION: sum(record.measuring_s(saving) for record in records for saving in record.savings()),
    }
