"""Measures how often equal methods, and different ones, are told apart on simulated boards: part of `coverage.py`.

The board's case has the scores and the spreads between seeds of a published board of thirteen methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import stdtr, stdtrit
from simulated import Floats, scores

from adaptive_bench.tables.comparison import Column, holm
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import SHARE, Crossed
from adaptive_bench.tables.pairs import Pairs
from adaptive_bench.tables.seed_variance import Prior, Spread

DOCUMENTS = 100
SEEDS = (2, 3, 5)
METHODS = 13
PLACES = np.array(list(combinations(range(METHODS), 2)))
CHANGES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # upper ends of the ranges of score differences for which power is shown
CONTROL = 6  # index of a trained control among the methods of the board


@dataclass(frozen=True)
class Case:
    """A board's true scores, spreads between seeds in logits, and the share of seeds that collapse."""

    name: str
    means: tuple[float, ...]
    spreads: tuple[float, ...]
    collapsing: float = 0.0

    def draw(self, random: np.random.Generator, seeds: int) -> Floats:
        return scores(random, np.array(self.means), np.array(self.spreads), seeds, DOCUMENTS, self.collapsing)


_FOUR, _TWELVE = (0.2, 0.8) * 6 + (0.2,), (0.1, 1.2) * 6 + (0.1,)
_GROUPS = (0.98,) * 5 + (0.93,) * 2 + (0.65,) * 2 + (0.13,) * 2 + (0.03,) * 2
BOARD = Case(
    "the board",
    (0.9975, 0.994, 0.986, 0.986, 0.979, 0.963, 0.956, 0.907, 0.727, 0.575, 0.136, 0.033, 0.022),
    (0.6, 0.64, 0.67, 0.4, 0.36, 0.51, 0.37, 0.34, 0.63, 0.56, 0.17, 0.2, 0.65),
)
CASES = (
    Case("equal at 50 %", (0.5,) * METHODS, (0.4,) * METHODS),
    Case("equal at 90 %", (0.9,) * METHODS, (0.4,) * METHODS),
    Case("equal at 98 %", (0.98,) * METHODS, (0.4,) * METHODS),
    Case("the board's case: equal within five levels", _GROUPS, BOARD.spreads),
    Case("equal at 50 %, spreads differ fourfold", (0.5,) * METHODS, _FOUR),
    Case("equal at 50 %, spreads differ twelvefold", (0.5,) * METHODS, _TWELVE),
    Case("the board's levels, spreads differ twelvefold", _GROUPS, _TWELVE),
    Case("equal at 50 %, one of them twelve times the others", (0.5,) * METHODS, (0.1,) * (METHODS - 1) + (1.2,)),
    Case("equal, a third of all seeds collapses", (0.95,) * METHODS, (0.4,) * METHODS, 1 / 3),
)


def before(tables: Floats) -> tuple[Floats, Floats, Floats]:
    """Means, half widths and p-values of paired differences [N, S, D] by the earlier procedure.

    Seeds are paired, p comes from Student's t with S - 1 degrees of freedom, and two documents are added, one in favour
    of each side (Agresti and Min).
    """
    seeds, documents = tables.shape[1:]
    crossed = Crossed.of(tables)
    shrunk = documents / (documents + 2)
    centre = crossed.mean * shrunk
    half = crossed.quantile(0.95) * np.sqrt(crossed.variance * shrunk**2 + 1 / (documents + 2) ** 2 / seeds)
    degrees = min(seeds, documents) - 1 if seeds > 1 else documents - 1
    return centre, half, 2 * stdtr(degrees, np.abs(centre) / half * stdtrit(degrees, 0.025))


def _before(tables: Floats) -> Floats:
    one, other = PLACES.T
    return np.array(holm(before(tables[one] - tables[other])[2].tolist())) < 0.05


def _now(tables: Floats, most: float | None = None) -> Floats:
    spread = Spread.of(tables, SHARE)
    return np.array(holm(Pairs.of(spread, PLACES, Prior.of(spread.seeds, most)).p_values().tolist())) < 0.05


def errors(boards: int) -> Iterator[list[str]]:
    """For each case, the share of boards, in percent, on which some pair of equal methods is told apart.

    It is given for each number of seeds, by the earlier procedure and by the present one.
    """
    for number, case in enumerate(CASES):
        found = []
        for seeds in SEEDS:
            random = np.random.default_rng([number, seeds])
            drawn = [case.draw(random, seeds) for _ in range(boards)]
            same = _equal(case)
            found += [_share(_before(one)[same].any() for one in drawn), _share(_now(one)[same].any() for one in drawn)]
        yield [case.name, *found]


def power(boards: int) -> Iterator[list[str]]:
    """For each range of true differences, the share of the board's pairs that are told apart, in percent.

    It is given for each number of seeds, by the earlier procedure and by the present one.
    """
    true = np.abs(np.subtract(*np.array(BOARD.means)[PLACES].T))
    found: list[list[Floats]] = []
    for seeds in SEEDS:
        random = np.random.default_rng([1, seeds])
        drawn = [BOARD.draw(random, seeds) for _ in range(boards)]
        found += [[_before(one) for one in drawn], [_now(one) for one in drawn]]
    means = [100 * np.mean(some, axis=0) for some in found]
    low = 0.0
    for high in CHANGES:
        here = (true > low) & (true <= high)
        yield [f"{100 * low:g} – {100 * high:g} points ({here.sum()})", *(f"{some[here].mean():.0f}" for some in means)]
        low = high
    there = true > 0
    yield [f"all ({there.sum()})", *(f"{some[there].mean():.0f}" for some in means)]


def against_control(boards: int) -> Iterator[list[str]]:
    """The share of the board's methods that are told apart from a control, in percent; and how often some method is
    told apart from a control that it equals.

    Both are given with p corrected for all pairs, and for the comparisons with the control alone.
    """
    equal = Case("", (0.956,) * METHODS, BOARD.spreads)
    wanted = [(str(place), str(CONTROL)) for place in range(METHODS) if place != CONTROL]
    every = [(str(one), str(other)) for one, other in PLACES]
    for name, case in (("methods of the board told apart", BOARD), ("some method told apart, all equal", equal)):
        shown = []
        for seeds in SEEDS:
            random = np.random.default_rng([2, seeds])
            columns = [_column(case.draw(random, seeds)) for _ in range(boards)]
            for pairs in (every, wanted):
                families = [column.family(pairs) for column in columns]
                apart = [[one.apart for pair, one in some.items() if str(CONTROL) in pair] for some in families]
                shown.append(_share(np.mean(some) if case is BOARD else any(some) for some in apart))
        yield [name, *shown]


def choices(boards: int) -> Iterator[list[str]]:
    """Power on the board and errors of some cases, in percent, for several limits of the prior's degrees of freedom and
    for the limit that the suite uses.
    """
    cases = (BOARD, CASES[0], CASES[3], CASES[5], CASES[7])
    for most in (0.0, 2.0, 4.0, 50.0, None):
        shown = []
        for number, case in enumerate(cases):
            for seeds in (3, 5):
                random = np.random.default_rng([3, number, seeds])
                apart = [_now(case.draw(random, seeds), most) for _ in range(boards)]
                shown.append(_share(some.mean() if case is BOARD else some[_equal(case)].any() for some in apart))
        yield ["as used" if most is None else f"{most:g}", *shown]


def at_once(boards: int) -> Iterator[list[str]]:
    """How often all intervals of a board hold their true differences at once, in percent."""
    for number, case in enumerate((BOARD, *CASES[:7])):
        true = np.array(case.means)
        shown = []
        for seeds in SEEDS:
            random = np.random.default_rng([4, number, seeds])
            held = []
            for _ in range(boards):
                column = _column(case.draw(random, seeds))
                found = column.family([(str(one), str(other)) for one, other in PLACES])
                ends = np.array([(one.low, one.high) for one in found.values()])
                difference = true[PLACES[:, 0]] - true[PLACES[:, 1]]
                held.append(bool(((ends[:, 0] <= difference + 1e-9) & (difference - 1e-9 <= ends[:, 1])).all()))
            shown.append(_share(held))
        yield [case.name, *shown]


def _column(tables: Floats) -> Column:
    members = tuple(range(tables.shape[1])), tuple(range(tables.shape[2]))
    return Column({str(place): DocumentScores(*members, one) for place, one in enumerate(tables)})


def _equal(case: Case) -> Floats:
    means = np.array(case.means)[PLACES]
    return means[:, 0] == means[:, 1]


def _share(held: Iterable[bool | np.bool_ | np.floating]) -> str:
    return f"{100 * float(np.mean([float(one) for one in held])):.1f}"
