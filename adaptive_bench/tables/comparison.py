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
Shape = tuple[int, int]  # numbers of seeds and documents


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
        self._blocks: list[tuple[list[Pair], Pairs, Shape]] = []
        self._p_values: dict[Pair, float] = {}  # uncorrected; NaN if a test is not possible
        for names, spread in spreads:
            if len(names) > 1:
                every = list(combinations(names, 2))
                pairs = Pairs.of(spread, np.transpose(np.triu_indices(len(names), 1)), prior)
                p_values = np.full(len(every), math.nan) if levels_of(*spread.shape) == "none" else pairs.p_values()
                self._p_values |= zip(every, p_values.tolist(), strict=True)
                self._blocks.append((every, pairs, spread.shape))

    def family(self, wanted: Sequence[Pair]) -> dict[Pair, Difference]:
        """Return the differences of some pairs, first minus second, corrected for the number of comparisons.

        Holm (Scandinavian Journal of Statistics 6, 1979) tests the smallest p-value at 5 % / m, the next at
        5 % / (m - 1) and so on, up to the first that is not significant. Each interval has the confidence at which its
        pair was tested; the intervals of all remaining pairs have the confidence of the last test. Pairs without a
        common seed or document are left out; pairs with a single pair of scores have no p-value.
        """
        # Pairs are kept in one direction; the other is turned at the end.
        known = {pair: pair if pair in self._p_values else pair[::-1] for pair in wanted}
        known = {pair: there for pair, there in known.items() if there in self._p_values}
        tested = [there for there in known.values() if not math.isnan(self._p_values[there])]
        corrected, alphas = _holm(np.array([self._p_values[pair] for pair in tested]))
        corrections = dict(zip(tested, zip(corrected.tolist(), alphas.tolist(), strict=True), strict=True))
        found: dict[Pair, Difference] = {}
        for every, pairs, shape in self._blocks:
            # Of all pairs of a block, also those that were not asked for.
            p_values, tested_at = np.array([corrections.get(pair, (math.nan, 1 - CONFIDENCE)) for pair in every]).T
            found |= zip(every, _differences(pairs, shape, tested_at, p_values), strict=True)
        return {pair: found[there] if there == pair else found[there].turned() for pair, there in known.items()}


def _differences(pairs: Pairs, shape: Shape, alphas: Floats, p_values: Floats) -> list[Difference]:
    """Return N differences with intervals of confidence 1 - alpha; only the means if a test is not possible."""
    levels = levels_of(*shape)
    if levels == "none":
        return [Difference(mean, None, None, None, *shape, levels) for mean in pairs.differences.tolist()]
    numbers = zip(*(part.tolist() for part in (pairs.differences, *pairs.limits(alphas), p_values)), strict=True)
    return [Difference(mean, low, high, p, *shape, levels) for mean, low, high, p in numbers]


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
    pairs = Pairs.of_same_seeds(np.array([one, other]), bounds)
    return _differences(pairs, (len(one), len(one[0])), np.array([1 - CONFIDENCE]), pairs.p_values())[0]


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
        order: Names from best to worst.
        better: Whether the first is certainly better than the second; called only for pairs in this order.
    """
    above: dict[str, set[str]] = {}
    for place, name in enumerate(order):
        # Those above are complete by now, so one step of the chain is enough.
        certain = [one for one in order[:place] if better(one, name)]
        above[name] = set(certain).union(*(above[one] for one in certain))
    below = Counter(one for some in above.values() for one in some)
    return {name: (1 + len(above[name]), len(order) - below[name]) for name in order}
