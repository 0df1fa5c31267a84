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
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.planning.plan import Plan, plan
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.runs.work.carry_out import carry_out
from adaptive_bench.store.savings import Point, saving_name
from adaptive_bench.tables.matching import largest_saving, match
from adaptive_bench.tables.points import point_of
from adaptive_bench.tuning.objective import Objective
from adaptive_bench.tuning.result import EVALUATION, TRAINING
from adaptive_bench.tuning.search import Search, Trial


class Measuring:
    """Makes trials into results.

    Args:
        config: The run whose recipe, tasks and seeds are used.
        jobs: Processes to use; see `carry_out`.

    Attributes:
        levels: By method the saving at which its trials are compared where the objective is `score@target`: what they
            are trained towards; where one of the first of them does not get there on some task, the largest level of
            the tables that all of those get beyond (of none, the largest saving that all of them reach). At the end of
            a dial nothing is left for what was trained to decide.
    """

    def __init__(self, objective: Objective, config: RunConfig, reporter: Reporter, jobs: int | None = None) -> None:
        self.objective, self.config, self.reporter, self.jobs = objective, config, reporter, jobs
        self.levels: dict[Search, float] = {}
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
            self._settle_levels(wanted)
            for trial, sweeps in wanted.items():
                trial.measured += sweeps
                trial.scores += [self._value(sweep, trial.search) for sweep in sweeps]
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
        sweeps = (replace(sweep, levels=self.objective.levels(sweep.levels)) for sweep in whole.sweeps)
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

    def _settle_levels(self, measured: Mapping[Trial, Sequence[DialEvaluation]]) -> None:
        """The levels of methods whose first trials these are; later ones do not move it."""
        if self.objective.kind != "target":
            return
        shared = set.intersection(*({*(self.config.levels or find_task(name).levels)} for name in self.config.tasks))
        for search in {trial.search: None for trial in measured}:
            if search not in self.levels:
                sweeps = [sweep for trial, some in measured.items() if trial.search is search for sweep in some]
                target = min(float(sweep.training.content["target"]["saving"]) for sweep in sweeps)
                reached = min(largest_saving(points_of(sweep), _axis(sweep)) for sweep in sweeps)
                below = max((level for level in shared if 0 < level < reached), default=reached)
                self.levels[search] = target if reached >= target else below

    def _value(self, sweep: DialEvaluation, search: Search) -> float:
        objective = replace(self.objective, kind="score", at=self.levels[search]) if self.levels else self.objective
        dense = self._dense_score(sweep) if objective.needs_dense else None
        return objective.value(points_of(sweep), sweep.levels, _axis(sweep), sweep.metric, dense)

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
            matched = [match(points_of(sweep), sweep.levels, _axis(sweep)) for sweep in of_task]
            by_level = ([one.score for one in at] for at in zip(*matched, strict=True))
            curve[task] = [None if None in scores else fmean(one or 0.0 for one in scores) for scores in by_level]
        state = TrialState.PRUNED if pruned else TrialState.COMPLETE
        trial.end(state, value, reason=pruned, curve=curve, seconds=_seconds(trial.measured))


def points_of(sweep: DialEvaluation) -> list[Point]:
    """The measured points of a finished sweep."""
    return [point_of(one, sweep.metric, sweep.matched_curve) for one in (sweep.finished() or {}).values()]


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
