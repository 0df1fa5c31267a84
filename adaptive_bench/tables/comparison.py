"""Which of many methods differ: families of paired differences with Holm's correction, and the ranks left open."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import ArrayLike

from adaptive_bench.errors import UsageError
from adaptive_bench.tables.crossed import Floats
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import CONFIDENCE, SHARE, Bounds, Levels, checked, levels_of
from adaptive_bench.tables.pairs import Pairs
from adaptive_bench.tables.seed_variance import Prior, SeedVariances
from adaptive_bench.tables.spread import Spread

Pair = tuple[str, str]


@dataclass(frozen=True)
class Difference:
    """How much more one method scores than another on the same documents.

    Attributes:
        difference: Mean of the first less mean of the second.
        low, high: Interval at the confidence at which p was corrected, so that it does not hold 0 exactly where p is
            below 5 %; inside what the bounds allow; `None` where there is a single pair of scores.
        p: Two-sided p-value of no difference, corrected for the other comparisons of its family; `None` as above.
        seeds, documents: How many both have.
        levels: What the interval knows of, as in `Interval`.
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
        """Whether the two differ significantly at 5 %."""
        return self.p is not None and self.p < 1 - CONFIDENCE

    def turned(self) -> Difference:
        """The same of the second less the first."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return Difference(-self.difference, low, high, self.p, self.seeds, self.documents, self.levels)


class Column:
    """Methods that answered the same task: all their pairs, with what they say of each other's seeds.

    Args:
        methods: Scores by label, of one metric.
        bounds: Smallest and largest value of a score; infinite where there is none.
    """

    def __init__(self, methods: Mapping[str, DocumentScores], bounds: Bounds = SHARE) -> None:
        spreads = [
            (names, Spread.of(np.array([methods[name].values for name in names]), bounds)) for names in _alike(methods)
        ]
        prior = Prior.of(SeedVariances.joined([spread.seeds for _, spread in spreads])) if spreads else Prior()
        for one, other in combinations([names for names, _ in spreads], 2):
            for pair in product(one, other):
                some, others = (methods[name] for name in pair)
                if set(some.seeds) & set(others.seeds) and set(some.documents) & set(others.documents):
                    shared = np.array([scores.values for scores in some.shared(others)])
                    spreads.append((pair, Spread.of(shared, bounds)))
        self._blocks = [_block(names, spread, prior) for names, spread in spreads if len(names) > 1]
        self._places = {
            pair: place for place, pair in enumerate(pair for block in self._blocks for pair in block.names)
        }
        self._p = np.concatenate([np.empty(0), *(block.p_values for block in self._blocks)])

    def family(self, wanted: Sequence[Pair]) -> dict[Pair, Difference]:
        """Differences of some pairs, first less second, corrected for being so many.

        Holm (Scandinavian Journal of Statistics 6, 1979) tests the smallest p-value at 5 % / m, the next at
        5 % / (m - 1) and so on, up to the first that is not significant. Each interval has the confidence at which its
        pair was tested, those of all pairs that are left the confidence of the last test. Pairs without a seed or a
        document in common are left out; those with a single pair of scores have no p-value.
        """
        known = {pair: pair if pair in self._places else pair[::-1] for pair in wanted}
        places = {pair: self._places[there] for pair, there in known.items() if there in self._places}
        tested = np.array([place for place in places.values() if not math.isnan(self._p[place])], dtype=int)
        corrected, alphas = np.full_like(self._p, math.nan), np.full_like(self._p, 1 - CONFIDENCE)
        corrected[tested], alphas[tested] = _holm(self._p[tested])
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
        p_values: Of each pair alone; NaN where there is nothing to test by.
    """

    names: Sequence[Pair]
    pairs: Pairs
    p_values: Floats
    shape: tuple[int, int]

    def difference(self, mean: float, low: float, high: float, p: float) -> Difference:
        """The difference with these numbers, of which none but the mean is known where there is nothing to test by."""
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
    """Names of methods with the same seeds and documents, together."""
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for name, scores in methods.items():
        found.setdefault((scores.seeds, scores.documents), []).append(name)
    return found.values()


def paired_difference(first: ArrayLike, second: ArrayLike, bounds: Bounds = SHARE) -> Difference:
    """Difference of two runs of a method, or of others that a seed moves alike, with its 95 % interval and p-value.

    Seeds are pairs here, as documents are; methods that only share the order of their training text are compared by
    `Column`.

    Args:
        first, second: [S, D], scores of the same seeds on the same documents.
        bounds: Smallest and largest value a score can have; infinite where there is none.

    Raises:
        UsageError: The tables have different shapes, or see `interval`.
    """
    one, other = checked(first, bounds), checked(second, bounds)
    if one.shape != other.shape:
        raise UsageError(
            f"Paired methods need scores of the same seeds and documents, got {one.shape} and {other.shape}. Take what "
            f"they share: DocumentScores.shared."
        )
    block = _Block([("first", "second")], Pairs.of_same_seeds(np.array([one, other]), bounds), np.empty(0), one.shape)
    low, high = block.pairs.limits(np.array([1 - CONFIDENCE]))
    return block.difference(*(float(part[0]) for part in (block.pairs.differences, low, high, block.pairs.p_values())))


def _holm(p_values: Floats) -> tuple[Floats, Floats]:
    """Corrected p-values, and the error rates at which they were tested, in the given order."""
    count = len(p_values)
    # Equal ones are common (the same difference twice, or as far as any can be), and their last digits differ by
    # processor: which of them is tested first, and so at which confidence, is up to the given order.
    with np.errstate(divide="ignore"):
        order = np.argsort(np.round(np.log(p_values), 9), kind="stable")
    steps = np.empty(count)
    steps[order] = count - np.arange(count)
    corrected = np.empty(count)
    corrected[order] = np.minimum(np.maximum.accumulate((steps * p_values)[order]), 1.0)
    apart = corrected < 1 - CONFIDENCE
    left = max(count - int(apart.sum()), 1)
    return corrected, (1 - CONFIDENCE) / np.where(apart, steps, left)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for being many (Holm, 1979), in the given order."""
    return list(_holm(np.array(p_values, dtype=float))[0].tolist())


def rank_intervals(order: Sequence[str], better: Callable[[str, str], bool]) -> dict[str, tuple[int, int]]:
    """By name the best and the worst rank that is compatible with all tests: behind everyone who is certainly better,
    before everyone who is certainly worse. Where no test errs every interval holds the true rank.

    Who is certainly better than someone is so than everyone that is certainly worse than that one, whether or not the
    test of these two alone would say it.

    Args:
        order, better: As for `certainly_above`.
    """
    above = certainly_above(order, better)
    below = Counter(one for some in above.values() for one in some)
    return {name: (1 + len(above[name]), len(order) - below[name]) for name in order}


def certainly_above(order: Sequence[str], better: Callable[[str, str], bool]) -> dict[str, set[str]]:
    """By name everyone who is certainly better, be it than someone in between.

    Args:
        order: From best to worst.
        better: Whether the first is certainly better than the second; asked for pairs in this order alone.
    """
    above: dict[str, set[str]] = {}
    for place, name in enumerate(order):
        certain = [one for one in order[:place] if better(one, name)]
        above[name] = set(certain).union(*(above[one] for one in certain))
    return above
