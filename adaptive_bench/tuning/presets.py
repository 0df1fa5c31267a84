"""Defines two presets of studies, each with a grid of its own: which learning rates, and how many steps.

`rates` chooses the learning rate of the parameters that a method adds from one small grid, the same for every method.
`steps` finds out how many training steps are enough for the order of the methods not to depend on them. A trial is a
training like any other, so a run with the chosen rate or steps finds it done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import yaml

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.method import method_class, takes_target, training_spec
from adaptive_bench.runs.run_plan import levels_of
from adaptive_bench.runs.work_units import DialEvaluation
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluation import saving_name
from adaptive_bench.tables.comparison import Column, Pair, paired_difference
from adaptive_bench.tables.document_scores import DocumentScores, answers_by_seed
from adaptive_bench.tables.intervals import bounds_of
from adaptive_bench.task import Metric, metric_of
from adaptive_bench.tuning.search import Objective, Search, nearest, points_of
from adaptive_bench.tuning.space import METHOD_RATE, STEPS

# Factors of the backbone's rate. The rate itself comes first, because the first of several equally good ones is chosen.
GRID = (1.0, 0.2, 5.0, 25.0, 125.0)
Scores = Mapping[str, DocumentScores]  # by method, of one task at one level


@dataclass(frozen=True)
class Preset:
    """What a study tries, and what it says in the end."""

    setting: str  # in which trials differ
    base: str  # the number of the recipe that its values are multiples of, if none are given
    factors: tuple[float, ...]
    said: Callable[[Sequence[Search], RunConfig], list[str]]  # lines about finished searches
    # The config with the methods that the preset is about; refuses them or the objective.
    checked: Callable[[RunConfig, Objective], RunConfig]


def _for_rates(config: RunConfig, objective: Objective) -> RunConfig:
    if others := [text for text in config.methods if not takes_target(training_spec(MethodSpec.parse(text)))]:
        raise UsageError(
            f"The preset rates is for methods that are trained towards a saving, got {', '.join(others)}. Leave them "
            f"out, or leave --preset out and name the rates with --param {METHOD_RATE}=choice:A|B."
        )
    return config


def _edge(search: Search) -> float | None:
    """A method's best rate if it is the lowest or highest rate tried and better than all others; else `None`."""
    best, rates = search.best, [float(trial.values[METHOD_RATE]) for trial in search.results]
    if best is None or best.method_rate not in (min(rates), max(rates)):
        return None
    # Of several equally good rates (if none reaches the level, say) none points beyond the edge.
    return None if [trial.value for trial in search.complete].count(best.value) > 1 else best.method_rate


def _said_of_rates(searches: Sequence[Search], config: RunConfig) -> list[str]:
    """Each method's rate with its lead over the second best, whether it is at the edge, and all rates as YAML."""
    lines, chosen, seeds = [], {}, len(config.seeds)
    for search in searches:
        if (best := search.best) is None:
            continue
        method, rate = str(search.space.spec), float(best.values[METHOD_RATE])
        chosen[method] = rate
        line = f"{method}: {rate:g}"
        others = [trial for trial in search.complete if trial is not best]
        if others:
            # Complete trials have a value; `or 0.0` satisfies the type checker.
            second = max(others, key=lambda trial: trial.value or 0.0)
            lead = (best.value or 0.0) - (second.value or 0.0)
            over = f"{float(second.values[METHOD_RATE]):g}"
            line += f" is ahead of {over} by {lead:.4f}, {seeds} seed{'s' * (seeds > 1)}"
        if _edge(search) is not None:
            line += "; it is at the edge of what was tried, so a better one may lie beyond"
        lines.append(line + ".")
    text = yaml.safe_dump({"train": {"method_learning_rates": chosen}}, sort_keys=False).rstrip()
    return [*lines, "", text] if chosen else lines


def _for_steps(config: RunConfig, objective: Objective) -> RunConfig:
    levels = levels_of(objective.config(config))
    if len(levels) > 1:
        raise UsageError(
            f"Steps are compared at one level, got {objective} and {', '.join(f'{level:g}' for level in levels)}. Give "
            f"one with --levels, or --objective score@LEVEL."
        )
    methods = tuple(text for text in config.methods if method_class(training_spec(MethodSpec.parse(text))).trains)
    if not methods:
        raise UsageError(f"Steps are compared for methods that are trained, got {', '.join(config.methods)}. Add one.")
    return config.model_copy(update={"methods": methods})


def _said_of_steps(searches: Sequence[Search], config: RunConfig) -> list[str]:
    """The number of steps from which no order of two methods reverses on doubling, and which scores still change."""
    scores: defaultdict[tuple[int, str], dict[str, DocumentScores]] = defaultdict(dict)
    for search in searches:
        for trial in search.complete:
            sweeps = search.begun[trial.number].measured
            for task in dict.fromkeys(sweep.task for sweep in sweeps):
                found = _documents([sweep for sweep in sweeps if sweep.task == task])
                if found is not None:
                    scores[int(trial.values[STEPS]), task][trial.method] = found
    steps = sorted({number for number, _ in scores})
    # Given numbers of steps need not double, and only doublings are compared.
    pairs = [(before, after) for before, after in pairwise(steps) if after == 2 * before]
    doublings = [
        doubling(before, task, scores[before, task], scores[after, task], metric_of(find_task(task).metrics[0]))
        for before, after in pairs
        for task in config.tasks
    ]
    enough = enough_steps(doublings)
    lines = [
        f"None of {', '.join(str(before) for before, _ in pairs) or 'the numbers of'} steps is shown to be enough."
        if enough is None
        else f"{enough} steps are enough: no order that tests tell apart reverses at {2 * enough}."
    ]
    return lines + [_doubled(before, [one for one in doublings if one.steps == before]) for before, _ in pairs]


def _doubled(steps: int, tasks: Sequence[Doubling]) -> str:
    reversals = ", ".join(f"{one} and {other} on {found.task}" for found in tasks for one, other in found.reversals)
    moving = ", ".join(f"{method} on {found.task}" for found in tasks for method in found.not_converged)
    apart, pairs = sum(found.told_apart[0] for found in tasks), sum(found.pairs for found in tasks)
    what = f"these reverse: {reversals}" if reversals else "none reverses"
    also = f" Between the two, scores change beyond doubt for {moving}." if moving else ""
    return f"After {steps} steps tests tell {apart} of {pairs} pairs apart; at {2 * steps} {what}.{also}"


def _documents(sweeps: Sequence[DialEvaluation]) -> DocumentScores | None:
    """The score of every document at the level; `None` if the level is not reached or only means are known."""
    by_seed: dict[int, Mapping[int, float]] = {}
    for sweep in sweeps:
        seed, axis = sweep.training.seed, saving_name(sweep.config.match_on, sweep.config.match_phase)
        points = points_of(sweep)
        if (place := nearest(points, sweep.levels[-1], axis)) is not None:
            answers = answers_by_seed(sweep.metric, {seed: [points[place]]})
            if seed in answers:
                documents = sorted(points[place].documents.numbers)  # the order of the columns of `answers`
                by_seed[seed] = dict(zip(documents, answers[seed][0].tolist(), strict=True))
    return DocumentScores.of(by_seed) if by_seed else None


@dataclass(frozen=True)
class Doubling:
    """The methods that reach a level on a task both after N steps and after 2N, compared."""

    steps: int  # N
    task: str
    told_apart: tuple[int, int]  # pairs that the tests of a column (all pairs, Holm) tell apart, after N and after 2N
    pairs: int  # number of pairs tested; 0 if the scores of single documents are not known
    reversals: tuple[Pair, ...]  # whose first is found better after N steps and whose second after 2N
    not_converged: tuple[str, ...]  # the 95 % interval of score after 2N less score after N does not hold 0


def doubling(steps: int, task: str, before: Scores, after: Scores, metric: Metric) -> Doubling:
    """Compare methods after N and after 2N steps; a method without a common seed and document is left out."""
    # By method, its scores after N and after 2N, [S, D] each: only on seeds and documents that both have.
    shared = {
        method: scores.shared(after[method])
        for method, scores in before.items()
        if method in after
        and set(scores.seeds) & set(after[method].seeds)
        and set(scores.documents) & set(after[method].documents)
    }
    bounds = bounds_of(metric, (one.values for pair in shared.values() for one in pair))
    wanted = list(combinations(shared, 2))
    # Corrected separately after N and after 2N.
    first, second = (Column({name: one[at] for name, one in shared.items()}, bounds).family(wanted) for at in (0, 1))
    sign = -1.0 if metric.better == "lower" else 1.0
    return Doubling(
        steps,
        task,
        (sum(one.apart for one in first.values()), sum(one.apart for one in second.values())),
        sum(one.p is not None for one in first.values()),
        tuple(
            pair if sign * one.difference > 0 else pair[::-1]
            for pair, one in first.items()
            if one.apart and second[pair].apart and one.difference * second[pair].difference < 0  # of opposite signs
        ),
        # A method is compared with itself here, so seeds are paired as well as documents.
        tuple(name for name, (old, new) in shared.items() if paired_difference(new.values, old.values, bounds).apart),
    )


def enough_steps(doublings: Iterable[Doubling]) -> int | None:
    """Return the smallest N after which no order reverses at 2N on any task; `None` if there is none.

    Without an order after N none can reverse, for example if no method has learnt anything yet. So N counts only if
    tests tell some pair apart after N, and do so on each task on which they do after 2N.
    """
    by_steps: dict[int, list[Doubling]] = {}
    for one in doublings:
        by_steps.setdefault(one.steps, []).append(one)
    lasting = [
        steps
        for steps, tasks in by_steps.items()
        if not any(one.reversals for one in tasks)
        and any(one.told_apart[0] for one in tasks)
        and all(one.told_apart[0] or not one.told_apart[1] for one in tasks)
    ]
    return min(lasting, default=None)


PRESETS = {
    "rates": Preset(METHOD_RATE, "learning_rate", GRID, _said_of_rates, _for_rates),
    "steps": Preset(STEPS, "steps", (1, 2, 4), _said_of_steps, _for_steps),
}
