"""The rate rule: parameters a method adds get their learning rate from one small grid, chosen on validation documents.

The same grid and the same objective for every method: the score at the saving it is trained towards, on validation
documents, averaged over tasks and seeds. Where a trial on the grid does not get that far, the score at the largest
level of the tables that all of them get beyond: at the end of a dial every token may skip all that a method can skip,
where nothing is left for what was trained to decide and all rates score alike. Where the best rate of a method is the
first or last of its grid, the next rate beyond it is tried as well, up to `EXTENSIONS` times. A trial is a training
like any other, so a run with the chosen rate finds its training done.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.method import takes_target, training_spec
from adaptive_bench.metric import metric_of
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.planning.conditions import compared_recipe
from adaptive_bench.runs.planning.plan import Plan, plan
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.runs.work.carry_out import carry_out
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.savings import Point, saving_name
from adaptive_bench.store.schema import SCHEMA
from adaptive_bench.tables.matching import largest_saving, match
from adaptive_bench.tables.points import point_of

Better = Literal["higher", "lower"]
STEP = 5.0
GRID = (1.0, STEP, STEP**2)  # times the rate of the backbone
EXTENSIONS = 2  # rates beyond the grid, at most, for a method whose best is at its edge


@dataclass(frozen=True)
class Trial:
    """One method at one rate.

    Attributes:
        method: As it is trained.
        rate: Peak rate of the parameters it adds.
        scores: By task, the headline score on validation documents at `level`, a mean over seeds.
        level: Saving it was trained towards; where a trial of its method on the grid does not reach that, the largest
            level of the tables that all of them get beyond (of none, the largest saving that all of them reach).
        records: The trainings.
        better: Which way scores are better, the same for all tasks.
        extension: Whether its rate was added because the edge of the grid was the best.
    """

    method: str
    rate: float
    scores: dict[str, float]
    level: float
    records: tuple[str, ...]
    better: Better = "higher"
    extension: bool = False

    @property
    def score(self) -> float:
        """Mean over tasks."""
        return fmean(self.scores.values())

    def beats(self, other: Trial) -> bool:
        """Whether its score is the better one."""
        return self.score > other.score if self.better == "higher" else self.score < other.score

    def to_json(self) -> dict[str, Any]:
        """Plain values; a score that is not finite is `None`."""
        scores = {task: score if math.isfinite(score) else None for task, score in self.scores.items()}
        return asdict(self) | {"scores": scores, "score": self.score if math.isfinite(self.score) else None}


@dataclass(frozen=True)
class RateChoice:
    """All trials, and what could not be tried.

    Attributes:
        tried: By method, every rate that was tried, failed ones too.
    """

    trials: tuple[Trial, ...]
    failures: tuple[Failure, ...]
    tried: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def chosen(self) -> dict[str, float]:
        """The best rate of each method; of equal ones the lowest."""
        return {method: trial.rate for method, trial in self._best(self.trials).items()}

    @property
    def at_edge(self) -> dict[str, bool]:
        """By method, whether the lowest or the highest rate that was tried is better than all others: a better one may
        lie beyond.
        """
        rates = {method: self.tried.get(method) or self._rates(method) for method in self.chosen}
        ties = {method for method, (_, lead) in self.leads.items() if lead == 0}
        return {
            method: method not in ties and rate in (min(rates[method]), max(rates[method]))
            for method, rate in self.chosen.items()
        }

    @property
    def leads(self) -> dict[str, tuple[float, float]]:
        """By method with several trials, the second best rate and by how much its score is worse."""
        best = self._best(self.trials)
        second = self._best([trial for trial in self.trials if trial is not best[trial.method]])
        return {method: (other.rate, abs(best[method].score - other.score)) for method, other in second.items()}

    def said(self, seeds: int) -> list[str]:
        """A sentence for each method: what it was chosen over, by how much, and whether it is at the edge."""
        lines = []
        for method, rate in self.chosen.items():
            line = f"{method}: {rate:g}"
            if method in self.leads:
                other, lead = self.leads[method]
                line += f" is ahead of {other:g} by {lead:.4f}, {seeds} seed{'s' * (seeds > 1)}"
            if self.at_edge[method]:
                line += "; it is at the edge of what was tried, a better one may lie beyond"
            lines.append(line + ".")
        return lines

    def _rates(self, method: str) -> tuple[float, ...]:
        return tuple(trial.rate for trial in self.trials if trial.method == method)

    @staticmethod
    def _best(trials: Iterable[Trial]) -> dict[str, Trial]:
        best: dict[str, Trial] = {}
        for trial in sorted(trials, key=lambda trial: trial.rate):
            if trial.method not in best or trial.beats(best[trial.method]):
                best[trial.method] = trial
        return best

    def to_json(self, config: RunConfig) -> dict[str, Any]:
        """Everything a reader needs to do it again: recipe, trials and choice."""
        trials = [trial.to_json() for trial in self.trials]
        leads = {method: {"over": rate, "by": lead} for method, (rate, lead) in self.leads.items()}
        leads = {method: about for method, about in leads.items() if math.isfinite(about["by"])}
        recipe = compared_recipe(config, "method_learning_rates")
        about = {"schema": SCHEMA, "documents": "validation", "recipe": recipe, "trials": trials}
        return about | {"chosen": self.chosen, "edge": self.at_edge, "leads": leads}


def choose_rates(
    config: RunConfig, rates: Sequence[float] | None = None, reporter: Reporter | None = None, jobs: int | None = None
) -> RateChoice:
    """Train every method of a run at every rate and compare them on validation documents.

    Args:
        config: Its methods are those that add parameters; one target.
        rates: Peak rates, these alone; `None` for `GRID` times the rate of the backbone, which grows where its edge is
            the best.
        jobs: Processes to use.

    Raises:
        UsageError: Several targets are given, a method trains towards none, or the tasks' first metrics are not better
            in the same, known direction.
    """
    better = _better(config.tasks)
    if config.train.target is not None and len(config.train.target) > 1:
        raise UsageError(f"Rates are compared at one target, got train.target={list(config.train.target)}. Give one.")
    reporter = reporter or SilentReporter()
    grows, rates = not rates, rates or [config.train.learning_rate * factor for factor in GRID]
    specs = list(dict.fromkeys(training_spec(MethodSpec.parse(text)) for text in config.methods))
    for spec in specs:
        if not takes_target(spec):
            raise UsageError(
                f"Rates are compared at the saving a method is trained towards, but {spec} is trained towards none. "
                f"Leave it out."
            )
    tried = dict.fromkeys(map(str, specs), tuple(rates))
    measured, failures = _measure(config, [(spec, rate) for rate in rates for spec in specs], reporter, jobs)
    # Extensions do not move the level: what is far off may reach nothing.
    tabled = _tabled_levels(config)
    levels = {
        spec: _common_level([sweeps for (of, _), sweeps in measured.items() if of == spec], tabled) for spec in specs
    }
    trials = [_trial(spec, rate, sweeps, levels[spec], better) for (spec, rate), sweeps in measured.items()]
    choice = RateChoice(tuple(trials), tuple(failures), tried)
    for _ in range(EXTENSIONS if grows else 0):
        further = {spec: _beyond(choice, str(spec)) for spec in specs if choice.at_edge.get(str(spec))}
        if not further:
            break
        measured, failures = _measure(config, list(further.items()), reporter, jobs)
        added = [_trial(spec, rate, sweeps, levels[spec], better) for (spec, rate), sweeps in measured.items()]
        choice = RateChoice(
            (*choice.trials, *(replace(trial, extension=True) for trial in added)),
            (*choice.failures, *failures),
            {**choice.tried, **{str(spec): (*choice.tried[str(spec)], rate) for spec, rate in further.items()}},
        )
    return choice


def _beyond(choice: RateChoice, method: str) -> float:
    """The next rate on the side on which the best one is the last."""
    best = choice.chosen[method]
    beyond = best * STEP if best == max(choice.tried[method]) else best / STEP
    return float(f"{beyond:.12g}")  # no digits that come from the division alone


def _measure(
    config: RunConfig, wanted: Sequence[tuple[MethodSpec, float]], reporter: Reporter, jobs: int | None
) -> tuple[dict[tuple[MethodSpec, float], list[DialEvaluation]], Sequence[Failure]]:
    """Train and measure methods at rates; the sweeps of those that are complete, and what failed."""
    rates = dict.fromkeys(rate for _, rate in wanted)
    plans = {rate: _plan(config, [spec for spec, at in wanted if at == rate], rate) for rate in rates}
    whole = Plan(
        config,
        tuple({training.folder: training for one in plans.values() for training in one.trainings}.values()),
        tuple(sweep for one in plans.values() for sweep in one.sweeps),
    )
    failures = carry_out(whole, reporter, jobs)
    measured = {}
    for spec, rate in wanted:
        sweeps = [sweep for sweep in plans[rate].sweeps if sweep.spec == spec]
        if all(sweep.finished() for sweep in sweeps):
            measured[spec, rate] = sweeps
    return measured, failures


def _better(tasks: Sequence[str]) -> Better:
    known = {task: metric_of(find_task(task).metrics[0]).better for task in tasks}
    if set(known.values()) == {"higher"}:
        return "higher"
    if set(known.values()) == {"lower"}:
        return "lower"
    told = ", ".join(f"{task}: {better}" for task, better in known.items())
    raise UsageError(
        f"Rates are compared by the mean over tasks, whose first metrics have to be better in one direction, got "
        f"{told}. Leave out the tasks of one of them."
    )


def _plan(config: RunConfig, specs: Sequence[MethodSpec], rate: float) -> Plan:
    recipe = config.train.model_copy(update={"method_learning_rates": {str(spec): rate for spec in specs}})
    methods = tuple(map(str, specs))
    return plan(config.model_copy(update={"methods": methods, "train": recipe}), splits=("validation",))


def _trial(spec: MethodSpec, rate: float, sweeps: Sequence[DialEvaluation], level: float, better: Better) -> Trial:
    scores: dict[str, list[float]] = {}
    for sweep in sweeps:
        (matched,) = match(_points(sweep), [level], _axis(sweep))
        worst = 0.0 if better == "higher" else math.inf  # of a trial that saves more than that at least
        scores.setdefault(sweep.task, []).append(worst if matched.score is None else matched.score)
    records = tuple({sweep.training.folder.name: None for sweep in sweeps})
    return Trial(str(spec), rate, {task: fmean(found) for task, found in scores.items()}, level, records, better)


def _tabled_levels(config: RunConfig) -> list[float]:
    """Savings above nothing at which the tables of all tasks give a score."""
    return sorted(
        level
        for level in set.intersection(*(set(config.levels or find_task(task).levels) for task in config.tasks))
        if level > 0
    )


def _common_level(trials: Sequence[Sequence[DialEvaluation]], tabled: Sequence[float]) -> float:
    """The target of the trials of one method if all of them reach it on every task, else see `Trial.level`."""
    sweeps = [sweep for trial in trials for sweep in trial]
    target = min((float(sweep.training.content["target"]["saving"]) for sweep in sweeps), default=0.0)
    reached = min((largest_saving(_points(sweep), _axis(sweep)) for sweep in sweeps), default=0.0)
    if reached >= target:
        return target
    return max((level for level in tabled if level < reached), default=reached)


def _points(sweep: DialEvaluation) -> list[Point]:
    return [point_of(one, sweep.metric, sweep.matched_curve) for one in (sweep.finished() or {}).values()]


def _axis(sweep: DialEvaluation) -> str:
    return saving_name(sweep.config.match_on, sweep.config.match_phase)
