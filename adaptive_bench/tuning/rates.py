"""Chooses the learning rate of the parameters that a method adds: the preset `rates` of `tune`.

All methods try the same small grid and are compared at the saving they are trained towards. If a method's best rate is
at the edge of the grid, it tries the next rate beyond. A trial is a training like any other, so a run with the chosen
rate finds it done.
"""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.tuning.search import Proposal, Search, TrialRunner
from adaptive_bench.tuning.space import METHOD_RATE, parse_param
from adaptive_bench.validation import LARGEST_RATE

OBJECTIVE = "score@target"
STEP = 5.0
GRID = (1.0, STEP, STEP**2)  # factors of the backbone's rate
EXTENSIONS = 2  # most rates beyond the grid, for a method whose best rate is at the edge


def ranges(params: Sequence[str], config: RunConfig) -> list[str]:
    """The range to search, as `NAME=RANGE`: all rates that may be tried, or the given choice.

    Raises:
        UsageError: Something else than a choice of rates is given.
    """
    if not params:
        rate = config.train.learning_rate
        highest = min(rate * STEP ** (2 + EXTENSIONS), LARGEST_RATE)
        return [f"{METHOD_RATE}=log:{rate / STEP**EXTENSIONS:g}:{highest:g}"]
    asked = [parse_param(text) for text in params]
    if [name for _, name, _ in asked] != [METHOD_RATE] or asked[0][2].scale != "choice":
        raise UsageError(
            f"The preset tries given values of {METHOD_RATE}, got --param {', '.join(params)}. Give one as "
            f"--param '{METHOD_RATE}=choice:A|B', or leave --preset out."
        )
    return list(params)


def grid(config: RunConfig) -> list[Proposal]:
    """The trials of every method."""
    return [{METHOD_RATE: config.train.learning_rate * factor} for factor in GRID]


def _edge(search: Search) -> float | None:
    """A method's best rate if it is the lowest or highest rate tried and better than all others; else `None`."""
    best, rates = search.best, [float(trial.values[METHOD_RATE]) for trial in search.results]
    if best is None or best.method_rate not in (min(rates), max(rates)):
        return None
    return None if [trial.value for trial in search.complete].count(best.value) > 1 else best.method_rate


def beyond(search: Search) -> Proposal | None:
    """A trial with the next rate beyond the edge, if the best rate is at the edge."""
    edge = _edge(search)
    if edge is None or len(search.results) >= len(GRID) + EXTENSIONS:
        return None
    highest = max(float(trial.values[METHOD_RATE]) for trial in search.results)
    beyond = float(f"{edge * STEP if edge == highest else edge / STEP:.12g}")  # without rounding errors in the text
    return {METHOD_RATE: beyond} if beyond <= LARGEST_RATE else None


def said(searches: Sequence[Search], measuring: TrialRunner) -> list[str]:
    """Each method's rate with its lead over the second best, whether it is at the edge, and all rates as YAML."""
    lines, chosen, seeds = [], {}, len(measuring.config.seeds)
    for search in searches:
        if (best := search.best) is None:
            continue
        method, rate = str(search.space.spec), float(best.values[METHOD_RATE])
        chosen[method] = rate
        line = f"{method}: {rate:g}"
        others = [trial for trial in search.complete if trial is not best]
        if others:
            second = max(others, key=lambda trial: trial.value or 0.0)
            lead = (best.value or 0.0) - (second.value or 0.0)
            over = f"{float(second.values[METHOD_RATE]):g}"
            line += f" is ahead of {over} by {lead:.4f}, {seeds} seed{'s' * (seeds > 1)}"
        if search in measuring.levels:
            at = " and ".join(f"{100 * level:.4g}" for level in measuring.levels[search].values())
            line += f", at {at} % saved"
        if _edge(search) is not None:
            line += "; it is at the edge of what was tried, so a better one may lie beyond"
        lines.append(line + ".")
    text = yaml.safe_dump({"train": {"method_learning_rates": chosen}}, sort_keys=False).rstrip()
    return [*lines, "", text] if chosen else lines
