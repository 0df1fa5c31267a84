"""Paired differences, Holm's correction and rank intervals."""

from itertools import combinations, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from adaptive_bench.errors import UsageError
from adaptive_bench.tables.comparison import Column, holm, paired_difference, rank_intervals
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import SHARE, UNBOUNDED
from adaptive_bench.tables.pairs import Pairs


def _scores(values):
    return DocumentScores(tuple(range(values.shape[0])), tuple(range(values.shape[1])), values)


def _compared(methods, bounds=SHARE):
    """All pairs, better ones first, and the ranks that they leave open."""
    order = sorted(methods, key=lambda name: -float(methods[name].values.mean()))
    pairs = Column(methods, bounds).family(list(combinations(order, 2)))

    def better(one, other):
        return (one, other) in pairs and pairs[one, other].apart

    return SimpleNamespace(order=order, pairs=pairs, better=better, ranks=rank_intervals(order, better))


def test_methods_that_answer_alike_do_not_differ_and_are_not_certainly_equal():
    answers = np.array([[0.0, 1.0, 1.0, 0.0, 1.0]] * 2)
    found = paired_difference(answers, answers)
    assert (found.difference, found.p) == (0.0, 1.0)
    assert found.low < 0 < found.high


def test_a_single_pair_of_scores_has_no_interval():
    found = paired_difference([[0.5]], [[0.25]])
    assert (found.difference, found.low, found.p, found.levels) == (0.25, None, None, "none")


def test_tables_of_different_shape_are_refused():
    with pytest.raises(UsageError, match="same seeds and documents"):
        paired_difference(np.zeros((2, 3)), np.zeros((2, 4)))


@pytest.mark.parametrize("are_paired", [True, False])
def test_equal_methods_differ_in_five_percent(are_paired):
    random = np.random.default_rng(2)
    right = 1 / (1 + np.exp(-random.normal(0, 1.5, (1000, 1, 80))))
    one, other = (
        (random.random((1000, 4, 80)) < np.clip(right + random.normal(0, 0.05, (1000, 4, 1)), 0, 1)).astype(float)
        for _ in range(2)
    )
    if are_paired:
        apart = [paired_difference(*tables).apart for tables in zip(one, other, strict=True)]
    else:
        columns = [Column({"a": _scores(some), "b": _scores(others)}) for some, others in zip(one, other, strict=True)]
        apart = [column.family([("a", "b")])["a", "b"].apart for column in columns]
    assert 0.01 <= np.mean(apart) <= 0.065


def test_what_a_seed_does_to_both_runs_drops_out():
    random = np.random.default_rng(6)
    runs = random.normal(0, 1, (3, 60)) + random.normal(0, 0.5, (3, 1))
    found = paired_difference(runs + random.normal(0.05, 0.05, (3, 60)), runs, UNBOUNDED)
    assert found.apart and found.low is not None and found.high is not None and found.high - found.low < 0.1
    column = Column({"a": _scores(runs + 0.05), "b": _scores(runs)}, UNBOUNDED)
    assert not column.family([("a", "b")])["a", "b"].apart


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


COLUMNS = st.tuples(st.integers(2, 6), st.integers(1, 4), st.integers(1, 9)).flatmap(
    lambda shape: arrays(float, shape, elements=st.sampled_from([0.0, 0.25, 1.0]))
)


@given(COLUMNS)
def test_ranks_hold_the_point_rank_and_agree_with_every_interval(tables):
    methods = {str(place): _scores(values) for place, values in enumerate(tables)}
    found = _compared(methods)
    for place, name in enumerate(found.order, 1):
        low, high = found.ranks[name]
        assert 1 <= low <= place <= high <= len(methods)
    for (better, worse), difference in found.pairs.items():
        assert difference.difference >= -1e-12  # of equal scores whose means were rounded differently
        if difference.p is None or difference.low is None or difference.high is None:
            assert tables[0].size == 1
            continue
        assert difference.low <= difference.difference <= difference.high
        assert difference.apart == (difference.p < 0.05) == (difference.low > 0)
        if difference.apart:
            assert found.ranks[better][0] < found.ranks[worse][0] and found.ranks[better][1] < found.ranks[worse][1]
            assert found.better(better, worse) and not found.better(worse, better)


def test_an_interval_has_the_confidence_of_holm_s_step():
    """By hand: each pair alone at 5 % over the number of pairs that were left when it was tested."""
    random = np.random.default_rng(0)
    methods = {name: _scores(random.normal(mean, 0.3, (4, 50))) for name, mean in zip("abc", (0, 0.05, 5), strict=True)}
    column = Column(methods, UNBOUNDED)
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    family = column.family(pairs)
    assert [family[pair].apart for pair in pairs] == [False, True, True]
    alone = {pair: column.family([pair])[pair] for pair in pairs}
    assert family["a", "b"].p == alone["a", "b"].p and family["a", "b"].low == alone["a", "b"].low
    first, second = sorted(pairs[1:], key=lambda pair: alone[pair].p)
    assert family[first].p == pytest.approx(3 * alone[first].p)
    assert family[second].p == pytest.approx(max(2 * alone[second].p, 3 * alone[first].p))
    assert family[first].high - family[first].low > alone[first].high - alone[first].low


@pytest.mark.parametrize("rounding", [-1e-14, 0.0, 1e-14])
def test_of_equal_pairs_the_first_that_is_named_is_tested_first_whatever_rounding_says(rounding):
    scores = np.random.default_rng(3).normal(0, 0.3, (4, 50))
    methods = {"a": _scores(scores + 1), "b": _scores(scores), "c": _scores(scores * (1 + rounding))}
    found = Column(methods, UNBOUNDED).family([("a", "b"), ("a", "c")])
    first, second = found["a", "b"], found["a", "c"]
    assert first.low is not None and second.low is not None and first.low < second.low - 1e-6


def test_a_family_of_comparisons_with_one_control_is_corrected_for_these_alone():
    random = np.random.default_rng(1)
    control = "static_depth[trained=true]"
    shifts = {control: 0.0, "static_depth": -3.0, "mod": 0.17, "calm": 0.01, "free": 0.02, "gateskip": -0.1}
    methods = {name: _scores(random.normal(shift, 0.3, (5, 40))) for name, shift in shifts.items()}
    column = Column(methods, UNBOUNDED)
    over = column.family([(name, control) for name in shifts if name != control])
    assert over["mod", control].difference > 0 > over["gateskip", control].difference
    wide = column.family(list(combinations(shifts, 2)))[control, "mod"].turned()
    assert over["mod", control].p < wide.p and over["mod", control].low > wide.low


def test_one_method_leads_alone_and_none_leads_nothing():
    assert _compared({"only": _scores(np.ones((2, 3)))}).ranks == {"only": (1, 1)}
    assert _compared({}).ranks == {}


def test_documents_that_vary_more_for_one_method_than_for_another_drop_out_all_the_same():
    """Bits per byte: what is hard for one is harder for the other, and hides no difference."""
    random = np.random.default_rng(7)
    documents = random.normal(2, 0.5, (1, 100))
    methods = {
        name: _scores(factor * documents + random.normal(shift, 0.05, (3, 100)) + random.normal(0, 0.005, (3, 1)))
        for name, factor, shift in (("a", 1.0, 0.0), ("b", 1.08, -0.1), ("c", 1.0, 0.5))
    }
    found = Column(methods, UNBOUNDED).family([("b", "a"), ("c", "a")])
    assert found["b", "a"].apart and found["b", "a"].high - found["b", "a"].low < 0.1


def test_methods_of_unlike_seeds_and_documents_are_compared_on_what_they_share():
    random = np.random.default_rng(4)
    whole = _scores(random.normal(0, 1, (5, 60)))
    part = DocumentScores((1, 2, 9), tuple(range(40, 90)), random.normal(3, 1, (3, 50)))
    alone = DocumentScores((7,), (1000,), np.ones((1, 1)))
    found = _compared({"whole": whole, "part": part, "alone": alone}, UNBOUNDED)
    assert set(found.pairs) == {("part", "whole")}
    both = found.pairs["part", "whole"]
    assert (both.seeds, both.documents) == (2, 20) and both.apart
    assert found.ranks == {"part": (1, 2), "whole": (2, 3), "alone": (1, 3)}


def test_a_score_far_apart_is_told_apart_however_many_pairs_there_are():
    """Thirteen methods as on a board: 57 beside 99 of which p of t(S - 1) for 78 pairs could tell nothing."""
    random = np.random.default_rng(5)
    documents = random.normal(0, 1.5, (1, 1, 128))
    means = np.array([0.99] * 6 + [0.95, 0.9, 0.73, 0.57, 0.14, 0.03, 0.02])
    logits = np.log(means / (1 - means))[:, None, None] * 1.3 + documents + random.normal(0, 0.5, (13, 5, 1))
    answers = (random.random((13, 5, 128)) < 1 / (1 + np.exp(-logits))).astype(float)
    found = _compared({str(place): _scores(one) for place, one in enumerate(answers)})
    assert all(found.better(str(one), str(other)) for one in range(6) for other in (9, 10, 11, 12))
    assert found.ranks["9"][0] > 6 and all(found.ranks[str(one)][1] <= 9 for one in range(6))


def test_ranks_by_hand():
    better = {("a", "c"), ("a", "d"), ("b", "d")}
    ranks = rank_intervals("abcd", lambda one, other: (one, other) in better)
    assert ranks == {"a": (1, 2), "b": (1, 3), "c": (2, 4), "d": (3, 4)}


@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6))))
def test_who_is_better_than_a_better_one_is_better_too(pairs):
    names = "abcdefg"
    better = {(names[one], names[other]) for one, other in pairs if one < other}
    ranks = rank_intervals(names, lambda one, other: (one, other) in better)
    for place, name in enumerate(names, 1):
        assert 1 <= ranks[name][0] <= place <= ranks[name][1] <= len(names)
    for one, other in better:
        assert ranks[one][0] < ranks[other][0] and ranks[one][1] < ranks[other][1]


# Differences of two methods: MOVER's intervals, and p-values that agree with them.


# Newcombe, Statistics in Medicine 17 (1998), pages 873-890, Table II, method 10: right and asked of both, and limits.
NEWCOMBE = (
    (56, 70, 48, 80, 0.0524, 0.3339),
    (9, 10, 3, 10, 0.1705, 0.8090),
    (6, 7, 2, 7, 0.0582, 0.8062),
    (5, 56, 0, 29, -0.0381, 0.1926),
    (0, 10, 0, 20, -0.1611, 0.2775),
    (0, 10, 0, 10, -0.2775, 0.2775),
    (10, 10, 0, 20, 0.6791, 1.0000),
    (10, 10, 0, 10, 0.6075, 1.0000),
)
SHARES = st.floats(0, 1)
ERRORS = st.floats(1e-3, 0.02)


def _pair(one, other, error, error_other, correlation=0.0, degrees=np.inf, bounds=SHARE):
    parts = ([[one], [other]], [[error], [error_other]], [correlation], [degrees])
    return Pairs(*(np.array(part, dtype=float) for part in parts), bounds)


@st.composite
def comparisons(draw):
    """Two shares, their errors, their correlation (no more than the less variable mean allows, and than Fréchet's
    bound for shares of the same documents), degrees of freedom.
    """
    one, other, error, error_other = (draw(values) for values in (SHARES, SHARES, ERRORS, ERRORS))
    deviations = sorted(np.sqrt([one * (1 - one) * error, other * (1 - other) * error_other]))
    most = deviations[0] / deviations[1] if deviations[1] > 0 else 0.0
    least, greatest = sorted((one, other))
    most = min(most, np.sqrt(least * (1 - greatest) / (greatest * (1 - least)))) if least > 0 and greatest < 1 else 0.0
    return one, other, error, error_other, draw(st.floats(-0.5, 1)) * most, draw(st.floats(1, 200))


@pytest.mark.parametrize(("right", "asked", "right_other", "asked_other", "low", "high"), NEWCOMBE)
def test_independent_shares_have_newcombe_s_limits(right, asked, right_other, asked_other, low, high):
    pair = _pair(right / asked, right_other / asked_other, 1 / asked, 1 / asked_other)
    assert np.concatenate(pair.limits(np.array([0.05]))) == pytest.approx([low, high], abs=6e-5)


def test_what_correlates_differs_less_and_has_the_paired_formula():
    pair = _pair(0.9, 0.7, 1 / 50, 1 / 50, 0.5)
    alone = [_pair(share, share, 1 / 50, 1 / 50).limits(np.array([0.05]))[1][0] / np.sqrt(2) for share in (0.9, 0.7)]
    low, high = (end[0] for end in pair.limits(np.array([0.05])))
    below, above = pair._arms(np.array([1.959964]))
    expected = np.sqrt(below[0] ** 2 + above[1] ** 2 - below[0] * above[1])[0]
    assert low == pytest.approx(0.2 - expected, abs=1e-6)
    assert high - low < sum(alone) * 2


def test_scores_without_bounds_have_the_t_interval_of_their_difference():
    pair = _pair(1.5, 1.0, 0.03, 0.04, 0.25, 7, UNBOUNDED)
    half = 2.364624 * np.sqrt(0.03 + 0.04 - 2 * 0.25 * np.sqrt(0.03 * 0.04))
    assert np.concatenate(pair.limits(np.array([0.05]))) == pytest.approx([0.5 - half, 0.5 + half], abs=1e-6)


@given(comparisons(), st.floats(1e-6, 0.5))
def test_an_interval_excludes_0_exactly_where_p_is_below_its_error_rate(one, alpha):
    pair = _pair(*one)
    p = pair.p_values()[0]
    low, high = (end[0] for end in pair.limits(np.array([alpha])))
    assert -1 <= low <= one[0] - one[1] <= high <= 1
    assert 0 <= p <= 1
    if abs(p / alpha - 1) > 1e-6:
        assert (p < alpha) == (low > 0 or high < 0)


@given(comparisons(), st.floats(1e-6, 0.5))
def test_swapping_the_methods_turns_everything(one, alpha):
    first, second, error, error_other, *rest = one
    pair, turned = _pair(*one), _pair(second, first, error_other, error, *rest)
    alphas = np.array([alpha])
    assert turned.p_values() == pytest.approx(pair.p_values(), rel=1e-6)
    assert turned.limits(alphas)[0] == pytest.approx(-pair.limits(alphas)[1], abs=1e-12)


@given(comparisons())
@example((0.5, 0.5, 2**-6, 2**-6, 1.0, 1.0))  # no difference and no doubt of it
def test_more_confidence_is_a_wider_interval(one):
    pair = _pair(*one)
    ends = [pair.limits(np.array([alpha])) for alpha in (0.2, 0.05, 0.001)]
    assert all(wide[0] <= near[0] + 1e-12 and near[1] <= wide[1] + 1e-12 for near, wide in pairwise(ends))


def test_the_end_of_an_interval_is_its_estimate_only_at_the_end_of_the_range():
    low, high = _pair(0.997, 0.033, 1 / 500, 1 / 500).limits(np.array([0.05]))
    assert low[0] < 0.964 < high[0] < 1.0
    low, high = _pair(1.0, 0.0, 1 / 500, 1 / 500).limits(np.array([0.05]))
    assert low[0] < 1.0 == high[0]
