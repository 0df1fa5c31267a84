"""The steps rule: how many training steps are enough for the order of the methods not to hang on them.

Every trained method is trained for N, 2N, 4N ... steps and compared at one saving on validation documents: what the
number of steps is chosen on is not what a board judges on. All else of the recipe stays, the steps of warm-up too, so
that each training is that of a run with `--set train.steps=...`, which finds it done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.method import method_class, training_spec
from adaptive_bench.metric import metric_of
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.runs.planning.conditions import compared_recipe, recipe_text
from adaptive_bench.runs.planning.plan import Plan, plan, without_groups
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.runs.work.carry_out import carry_out
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.savings import saving_name
from adaptive_bench.store.schema import SCHEMA
from adaptive_bench.tables.at_levels import Measured
from adaptive_bench.tables.document_scores import DocumentScores, answers_by_seed, mixed_scores
from adaptive_bench.tables.doubling import Doubling, doubling, enough_steps
from adaptive_bench.tables.matching import largest_saving
from adaptive_bench.tables.points import point_of
from adaptive_bench.tables.rows import table_rows
from adaptive_bench.task import Task

LEVEL = 0.15  # the saving of the paper's second table, at which verdicts are given
_SAME = 1e-9


@dataclass(frozen=True)
class StepScore:
    """One method on one task after so many steps.

    Attributes:
        method: Its spec.
        task, metric: What it is scored on; the task's first metric.
        steps: Optimizer steps of its training.
        score: At the level, a mean over seeds; `None` where the level was not reached.
        low, high: 95 % interval, over documents where there is one seed; `None` where there is none.
        saved_tokens, saved_net: What was saved there.
        gap: How far the measured savings are apart between which it was read off.
        largest: The largest saving that all seeds reach, on the axis of the level.
        target: Of several targets the one that serves the level best; `None` where there is no choice.
        seeds, documents: How many are behind it.
        records: The trainings.
    """

    method: str
    task: str
    metric: str
    steps: int
    score: float | None
    low: float | None
    high: float | None
    saved_tokens: float | None
    saved_net: float | None
    gap: float | None
    largest: float
    target: float | None
    seeds: int
    documents: int
    records: tuple[str, ...]


@dataclass(frozen=True)
class StepComparison:
    """All scores, what each doubling changes, and what could not be done.

    Attributes:
        recipes: By steps how every method was trained, and `backbone` from what: as in the rows of a table.
    """

    level: float
    recipes: Mapping[int, str]
    backbone: str
    scores: tuple[StepScore, ...]
    doublings: tuple[Doubling, ...]
    failures: tuple[Failure, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers that were compared."""
        return tuple(self.recipes)

    @property
    def enough(self) -> int | None:
        """See `enough_steps`."""
        return enough_steps(self.doublings)

    def to_json(self, config: RunConfig) -> dict[str, Any]:
        """Everything a reader needs to do it again or to show it: recipe, scores, doublings, verdict."""
        return {
            "schema": SCHEMA,
            "documents": "validation",
            "recipe": compared_recipe(config, "steps"),
            "recipes": self.recipes,
            "backbone": self.backbone,
            "level": self.level,
            "steps": self.steps,
            "enough": self.enough,
            "scores": [asdict(one) for one in self.scores],
            "doublings": [
                {
                    "steps": one.steps,
                    "task": one.task,
                    "pairs": one.pairs,
                    "told_apart": one.told_apart,
                    "reversals": one.reversals,
                    "not_converged": one.not_converged,
                    "methods": {
                        method: {
                            "ranks": [ranks[method] for ranks in one.ranks],
                            "difference": found.difference,
                            "low": found.low,
                            "high": found.high,
                        }
                        for method, found in one.moved.items()
                    },
                }
                for one in self.doublings
            ],
        }


def compare_steps(
    config: RunConfig,
    steps: Sequence[int] | None = None,
    level: float = LEVEL,
    reporter: Reporter | None = None,
    jobs: int | None = None,
) -> StepComparison:
    """Train every trained method of a run for each number of steps and compare them on validation documents.

    Args:
        config: Methods that are not trained are left out.
        steps: Each twice the one before; `None` for N, 2N and 4N of the config's own N.
        level: Saving at which methods are compared, one of the levels of every task.
        jobs: Processes to use.

    Raises:
        UsageError: Steps, level or methods break one of these rules.
    """
    config = without_groups(config)
    steps = tuple(steps or (config.train.steps * factor for factor in (1, 2, 4)))
    tasks = [find_task(name) for name in config.tasks]
    methods = _checked(config, tasks, steps, level)
    config, reporter = config.model_copy(update={"methods": methods}), reporter or SilentReporter()
    recipes: dict[int, str] = {}
    backbone = ""
    failures: list[Failure] = []
    scores: list[StepScore] = []
    by_task: dict[tuple[int, str], dict[str, DocumentScores]] = defaultdict(dict)
    for number in steps:  # one after the other: a job draws its text by the steps of its plan
        whole = _plan(config, number)
        recipes[number], backbone = recipe_text(whole.config), whole.trainings[0].content["backbone"]
        failures += carry_out(whole, reporter, jobs)
        for task, method in product(tasks, methods):
            found = _best(whole, method, task.name, level)
            if found is not None:
                scores.append(found[0])
                if found[1] is not None:
                    by_task[number, task.name][method] = found[1]
    doublings = [
        doubling(
            before,
            task.name,
            by_task[before, task.name],
            by_task[after, task.name],
            metric_of(task.metrics[0]),
        )
        for before, after in pairwise(steps)
        for task in tasks
    ]
    return StepComparison(level, recipes, backbone, tuple(scores), tuple(doublings), tuple(failures))


def _checked(config: RunConfig, tasks: Iterable[Task], steps: Sequence[int], level: float) -> tuple[str, ...]:
    """The trained methods, if everything that is asked for can be done."""
    if len(steps) < 2 or steps[0] < 1 or any(after != 2 * before for before, after in pairwise(steps)):
        raise UsageError(
            f"Numbers of steps are compared with twice as many, so each is twice the one before, got {list(steps)}. "
            f"Give for example --steps 320,640,1280."
        )
    for task in tasks:
        levels = config.levels or task.levels
        if not any(abs(level - one) <= _SAME for one in levels):
            raise UsageError(
                f"Methods are compared at a level that {task.name} is measured at ({', '.join(map(str, levels))}), got "
                f"{level:g}. Set --level."
            )
    specs = [MethodSpec.parse(text) for text in config.methods]
    methods = tuple(str(spec) for spec in specs if method_class(training_spec(spec)).trains)
    if not methods:
        raise UsageError(f"Steps are compared of methods that are trained, got {', '.join(config.methods)}. Add one.")
    return methods


def _plan(config: RunConfig, steps: int) -> Plan:
    recipe = TrainRecipe.model_validate(config.train.model_dump() | {"steps": steps})
    return plan(config.model_copy(update={"train": recipe}), splits=("validation",))


def _best(whole: Plan, method: str, task: str, level: float) -> tuple[StepScore, DocumentScores | None] | None:
    """Of the targets of a method the one that scores best at the level, as on a board; `None` where one is missing."""
    by_target: dict[float | None, list[DialEvaluation]] = {}
    for sweep in whole.sweeps:
        if (str(sweep.spec), sweep.task) == (method, task):
            by_target.setdefault(sweep.training.target, []).append(sweep)
    if any(sweep.finished() is None for sweeps in by_target.values() for sweep in sweeps):
        return None
    found = [_score(sweeps, level) for sweeps in by_target.values()]
    sign = -1 if metric_of(found[0][0].metric).better == "lower" else 1
    reached = [one for one in found if one[0].score is not None]
    return max(reached, key=lambda one: sign * (one[0].score or 0.0), default=found[0])


def _score(sweeps: Sequence[DialEvaluation], level: float) -> tuple[StepScore, DocumentScores | None]:
    """What one method, trained towards one target, scores at the level: as a table has it, and by document."""
    first = sweeps[0]
    axis, phase, metric = first.config.match_on, first.config.match_phase, first.metric
    by_asked = {sweep.training.seed: (sweep, sweep.finished() or {}) for sweep in sweeps}
    points = {seed: list(found.values()) for seed, (_, found) in by_asked.items()}
    samples = {seed: [sweep.record.samples(asked) for asked in found] for seed, (sweep, found) in by_asked.items()}
    rows = table_rows(first.spec, first.task, [metric], points, [level], first.curves, samples=samples)
    row = next(row for row in rows if (row.axis, row.phase) == (axis, phase))
    name = saving_name(axis, phase)
    score = StepScore(
        method=str(first.spec),
        task=first.task,
        metric=metric,
        steps=int(first.config.train.steps),
        score=row.score,
        low=row.low,
        high=row.high,
        saved_tokens=row.saved_tokens,
        saved_net=row.saved_net,
        gap=row.gap,
        largest=min(
            largest_saving([point_of(one, metric, first.matched_curve) for one in done], name)
            for done in points.values()
        ),
        target=None if first.training.has_single_target else first.training.target,
        seeds=row.seeds,
        documents=row.documents,
        records=tuple(dict.fromkeys(sweep.training.folder.name for sweep in sweeps)),
    )
    by_seed: dict[int, Mapping[int, float]] = {}
    for seed, answers in answers_by_seed(metric, points, samples).items():
        documents = sorted(sample.doc for sample in samples[seed][0])
        mixes = Measured(points[seed]).mixes(axis, phase, [level], first.matched_curve)
        (values,) = mixed_scores(mixes, answers)
        if values is not None:
            by_seed[seed] = dict(zip(documents, values.tolist(), strict=True))
    return score, DocumentScores.of(by_seed) if by_seed else None
