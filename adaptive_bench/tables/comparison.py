"""Tests which of many methods differ: families of paired differences with Holm's correction, and ranges of ranks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import ArrayLike

from adaptive_bench.errors import UsageError
from adaptive_bench.store.measured import Floats
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import CONFIDENCE, SHARE, Bounds, Levels, checked, levels_of
from adaptive_bench.tables.pairs import Pairs
from adaptive_bench.tables.seed_variance import Prior, SeedVariances, Spread

Pair = tuple[str, str]


@dataclass(frozen=True)
class Difference:
    """How much more one method scores than another on the same documents.

    Attributes:
        difference: Mean of the first minus mean of the second.
        low, high: Interval at the confidence that goes with the correction of p, so that it excludes 0 exactly if p is
            below 5 %; it stays inside what the bounds allow. `None` if there is a single pair of scores.
        p: Two-sided p-value of no difference, corrected for the other comparisons of its family; `None` as above.
        seeds, documents: Number of seeds and documents that both have.
        levels: What spread the interval takes into account, as in `Interval`.
    """

    difference: float
    low: float | None
    high: float | None
    p: float | None
    seeds: int
    documents: int
    levels: Levels

    @property
    def apart(self) -> bool:
        """Whether the two methods differ significantly at 5 %."""
        return self.p is not None and self.p < 1 - CONFIDENCE

    def turned(self) -> Difference:
        """Return the same comparison as second minus first."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return Difference(-self.difference, low, high, self.p, self.seeds, self.documents, self.levels)


class Column:
    """All pairs of methods that answered the same task, with a common prior for the variance between seeds.

    Args:
        methods: Scores in one metric, by label.
        bounds: Smallest and largest value of a score; infinite if there is none.
    """

    def __init__(self, methods: Mapping[str, DocumentScores], bounds: Bounds = SHARE) -> None:
        # Methods with equal seeds and documents: all their pairs at once.
        spreads = [
            (names, Spread.of(np.array([methods[name].values for name in names]), bounds)) for names in _alike(methods)
        ]
        prior = Prior.of(SeedVariances.joined([spread.seeds for _, spread in spreads])) if spreads else Prior()
        # Pairs of methods with different ones, each on what both have. The prior is from whole tables only.
        for one, other in combinations([names for names, _ in spreads], 2):
            for pair in product(one, other):
                some, others = (methods[name] for name in pair)
                if set(some.seeds) & set(others.seeds) and set(some.documents) & set(others.documents):
                    shared = np.array([scores.values for scores in some.shared(others)])
                    spreads.append((pair, Spread.of(shared, bounds)))
        self._blocks = [_block(names, spread, prior) for names, spread in spreads if len(names) > 1]
        # Where each pair is in the arrays over all blocks, one after the other.
        self._places = {
            pair: place for place, pair in enumerate(pair for block in self._blocks for pair in block.names)
        }
        self._p = np.concatenate([np.empty(0), *(block.p_values for block in self._blocks)])

    def family(self, wanted: Sequence[Pair]) -> dict[Pair, Difference]:
        """Return the differences of some pairs, first minus second, corrected for the number of comparisons.

        Holm (Scandinavian Journal of Statistics 6, 1979) tests the smallest p-value at 5 % / m, the next at
        5 % / (m - 1) and so on, up to the first that is not significant. Each interval has the confidence at which its
        pair was tested; the intervals of all remaining pairs have the confidence of the last test. Pairs without a
        common seed or document are left out; pairs with a single pair of scores have no p-value.
        """
        # Pairs are kept in one direction; the other is turned at the end.
        known = {pair: pair if pair in self._places else pair[::-1] for pair in wanted}
        places = {pair: self._places[there] for pair, there in known.items() if there in self._places}
        tested = np.array([place for place in places.values() if not math.isnan(self._p[place])], dtype=int)
        corrected, alphas = np.full_like(self._p, math.nan), np.full_like(self._p, 1 - CONFIDENCE)
        corrected[tested], alphas[tested] = _holm(self._p[tested])
        # Of all pairs, also those that were not asked for, so that places fit.
        every: list[Difference] = []
        for block in self._blocks:
            here = slice(len(every), len(every) + len(block.names))
            parts = (block.pairs.differences, *block.pairs.limits(alphas[here]), corrected[here])
            for numbers in zip(*(part.tolist() for part in parts), strict=True):
                every.append(block.difference(*numbers))
        return {pair: every[place] if known[pair] == pair else every[place].turned() for pair, place in places.items()}


@dataclass(frozen=True)
class _Block:
    """Pairs of methods with the same seeds and documents.

    Attributes:
        p_values: Uncorrected p-value of each pair; NaN if a test is not possible.
    """

    names: Sequence[Pair]
    pairs: Pairs
    p_values: Floats
    shape: tuple[int, int]

    def difference(self, mean: float, low: float, high: float, p: float) -> Difference:
        """Return a difference with these numbers; only the mean is kept if a test is not possible."""
        levels = levels_of(*self.shape)
        if levels == "none":
            return Difference(mean, None, None, None, *self.shape, levels)
        return Difference(mean, low, high, p, *self.shape, levels)


def _block(names: Sequence[str], spread: Spread, prior: Prior) -> _Block:
    places = np.array(list(combinations(range(len(names)), 2)))
    pairs = Pairs.of(spread, places, prior)
    p_values = np.full(len(places), math.nan) if levels_of(*spread.shape) == "none" else pairs.p_values()
    return _Block(list(combinations(names, 2)), pairs, p_values, spread.shape)


def _alike(methods: Mapping[str, DocumentScores]) -> Iterable[Sequence[str]]:
    """Group the names of methods that have the same seeds and documents."""
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for name, scores in methods.items():
        found.setdefault((scores.seeds, scores.documents), []).append(name)
    return found.values()


def paired_difference(first: ArrayLike, second: ArrayLike, bounds: Bounds = SHARE) -> Difference:
    """Compare two runs of one method, or two methods that a seed moves alike: difference, 95 % interval and p-value.

    Seeds are paired here, as documents are. Methods that share only the order of their training text are compared with
    `Column`.

    Args:
        first, second: [S, D], scores of the same seeds on the same documents.
        bounds: Smallest and largest value a score can have; infinite if there is none.

    Raises:
        UsageError: The tables have different shapes; or see `interval`.
    """
    one, other = checked(first, bounds), checked(second, bounds)
    if one.shape != other.shape:
        raise UsageError(
            f"Paired methods need scores of the same seeds and documents, got {one.shape} and {other.shape}. Take the "
            f"part that they share: DocumentScores.shared."
        )
    block = _Block([("first", "second")], Pairs.of_same_seeds(np.array([one, other]), bounds), np.empty(0), one.shape)
    low, high = block.pairs.limits(np.array([1 - CONFIDENCE]))
    return block.difference(*(float(part[0]) for part in (block.pairs.differences, low, high, block.pairs.p_values())))


def _holm(p_values: Floats) -> tuple[Floats, Floats]:
    """Return corrected p-values and the error rates at which they were tested, in the given order."""
    count = len(p_values)
    # Equal p-values are common (the same difference twice, or two differences of the largest possible size), and their
    # last digits depend on the processor. Rounding makes them equal, so that the given order decides which is tested
    # first, and thus at which confidence.
    with np.errstate(divide="ignore"):
        order = np.argsort(np.round(np.log(p_values), 9), kind="stable")
    steps = np.empty(count)
    # The smallest p-value is multiplied by the number of tests, the next by one less ...
    steps[order] = count - np.arange(count)
    corrected = np.empty(count)
    # A corrected p-value is never below that of a smaller one.
    corrected[order] = np.minimum(np.maximum.accumulate((steps * p_values)[order]), 1.0)
    apart = corrected < 1 - CONFIDENCE
    # The number by which 5 % was divided in the first test that failed; all that follow get its confidence.
    left = max(count - int(apart.sum()), 1)
    return corrected, (1 - CONFIDENCE) / np.where(apart, steps, left)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple comparisons (Holm, 1979), in the given order."""
    return list(_holm(np.array(p_values, dtype=float))[0].tolist())


def rank_intervals(order: Sequence[str], better: Callable[[str, str], bool]) -> dict[str, tuple[int, int]]:
    """Return by name the best and the worst rank that all tests allow: behind every method that is certainly better,
    before every method that is certainly worse. If no test errs, every interval holds the true rank.

    Being certainly better is transitive: if A is certainly better than B and B than C, then A counts as certainly
    better than C, whether or not the test of A and C says so.

    Args:
        order, better: As for `certainly_above`.
    """
    above = certainly_above(order, better)
    below = Counter(one for some in above.values() for one in some)
    return {name: (1 + len(above[name]), len(order) - below[name]) for name in order}


def certainly_above(order: Sequence[str], better: Callable[[str, str], bool]) -> dict[str, set[str]]:
    """Return by name all methods that are certainly better, directly or by way of a method in between.

    Args:
        order: Names from best to worst.
        better: Whether the first is certainly better than the second; called only for pairs in this order.
    """
    above: dict[str, set[str]] = {}
    for place, name in enumerate(order):
        # Those above are complete by now, so one step of the chain is enough.
        certain = [one for one in order[:place] if better(one, name)]
        above[name] = set(certain).union(*(above[one] for one in certain))
    return above
