"""One trial: the trainings of a method with some values, trained and swept in turn on validation documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.planning.plan import Plan, plan
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.runs.work.carry_out import carry_out
from adaptive_bench.store.keys import key_of
from adaptive_bench.store.savings import Point, saving_name
from adaptive_bench.tables.matching import match
from adaptive_bench.tables.points import point_of
from adaptive_bench.tuning.causes import Causes, check_causes
from adaptive_bench.tuning.objective import Objective
from adaptive_bench.tuning.seconds import seconds_of
from adaptive_bench.tuning.space import Space, Values
from adaptive_bench.tuning.study import Intermediate, TrialFailed


class Trials:
    """Makes trials of one method into results.

    Args:
        config: The run whose recipe, tasks and seeds are used.
        causes: What its trials are made from, from the first to the last.
        jobs: Processes for the work of one trial; see `carry_out`.
    """

    def __init__(
        self,
        space: Space,
        objective: Objective,
        config: RunConfig,
        causes: Causes,
        reporter: Reporter,
        jobs: int | None = None,
    ) -> None:
        self.space, self.objective, self.config, self.causes = space, objective, config, causes
        self.reporter, self.jobs = reporter, jobs
        self._dense: dict[tuple[int, str], float] = {}

    def run_trial(self, values: Values) -> Iterator[Intermediate]:
        """Train with some values; the mean objective after each seed and task.

        Raises:
            TrialFailed: Some of the work failed.
            EnvironmentProblem: It would be made from something else than the trials before it.
        """
        values_so_far: list[float] = []
        curve: dict[str, list[list[float | None]]] = {}
        try:
            whole = plan(self.space.config_with(values, self.config), splits=("validation",))
        except UsageError as error:  # of these values: the study itself was checked
            raise TrialFailed(str(error)) from error
        check_causes(whole, self.causes)
        for number, sweep in enumerate(whole.sweeps, 1):
            points = _measured(
                whole, replace(sweep, levels=self.objective.levels(sweep.levels)), self.reporter, self.jobs
            )
            dense = self._dense_score(sweep) if self.objective.needs_dense else None
            name = saving_name(sweep.config.match_on, sweep.config.match_phase)
            values_so_far.append(self.objective.value(points, sweep.levels, name, sweep.metric, dense))
            curve.setdefault(sweep.task, []).append([at_level.score for at_level in match(points, sweep.levels, name)])
            means = {task: [_mean(at) for at in zip(*seeds, strict=True)] for task, seeds in curve.items()}
            done = whole.sweeps[:number]
            yield Intermediate(
                fmean(values_so_far), number == len(whole.sweeps), means, seconds_of(done), _behaviour(done)
            )

    def _dense_score(self, sweep: DialEvaluation) -> float:
        """Score of the dense model that was trained with the same recipe and seed."""
        if (sweep.training.seed, sweep.task) not in self._dense:
            whole = plan(self.config.model_copy(update={"methods": ("dense",)}), splits=("validation",))
            check_causes(whole, self.causes)
            for other in whole.sweeps:
                points = _measured(whole, other, self.reporter, self.jobs)
                self._dense[other.training.seed, other.task] = points[0].score
        return self._dense[sweep.training.seed, sweep.task]


def _measured(whole: Plan, sweep: DialEvaluation, reporter: Reporter, jobs: int | None) -> list[Point]:
    """The points of one sweep, measured if they are not on disk.

    Raises:
        EnvironmentProblem: The surroundings are to blame, a full disk say, and not what is tried.
        TrialFailed: Some of the work failed otherwise.
    """
    trainings = tuple(training for training in whole.trainings if training in sweep.training.chain)
    needed = Plan(whole.config, trainings, (sweep,))
    failures = carry_out(needed, reporter, jobs)
    points = _points(sweep)
    if outside := [failure for failure in failures if failure.kind == EnvironmentProblem.kind]:
        raise EnvironmentProblem("; ".join(f"{failure.work}: {failure.reason}" for failure in outside))
    if failures or points is None:
        raise TrialFailed("; ".join(map(str, failures)) or f"{sweep} was not finished.")
    return points


def _points(sweep: DialEvaluation) -> list[Point] | None:
    measured = sweep.finished()
    return (
        None
        if measured is None
        else [point_of(evaluation, sweep.metric, sweep.matched_curve) for evaluation in measured.values()]
    )


def _behaviour(sweeps: Sequence[DialEvaluation]) -> str:
    """Digest of what the models of some sweeps do with held-out text; empty where one has none."""
    found = [(sweep.record.read("behaviour") or {}).get("sha256") for sweep in sweeps]
    return key_of(found) if all(found) else ""


def _mean(scores: tuple[float | None, ...]) -> float | None:
    known = [score for score in scores if score is not None]
    return fmean(known) if len(known) == len(scores) else None
