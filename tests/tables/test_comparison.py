"""Paired differences, Holm's correction and rank intervals."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from adaptive_bench.errors import UsageError
from adaptive_bench.tables.comparison import Column, holm, paired_difference, rank_intervals
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import SHARE, UNBOUNDED

PAIRS = st.tuples(st.integers(1, 4), st.integers(1, 9)).flatmap(
    lambda shape: st.tuples(*[arrays(float, shape, elements=st.sampled_from([0.0, 0.25, 1.0]))] * 2)
)


def _scores(values):
    return DocumentScores(tuple(range(values.shape[0])), tuple(range(values.shape[1])), values)


def _compared(methods, bounds=SHARE):
    """All pairs, better ones first, and the ranks that they leave open."""
    order = sorted(methods, key=lambda name: -float(methods[name].values.mean()))
    pairs = Column(methods, bounds).family(list(combinations(order, 2)))

    def better(one, other):
        return (one, other) in pairs and pairs[one, other].apart

    return SimpleNamespace(order=order, pairs=pairs, better=better, ranks=rank_intervals(order, better))


@given(PAIRS)
def test_a_difference_is_antisymmetric_and_its_p_agrees_with_its_interval(pair):
    first, second = pair
    found, turned = paired_difference(first, second), paired_difference(second, first)
    assert found.difference == pytest.approx(-turned.difference, abs=1e-12)
    if found.p is None or found.low is None or found.high is None:
        assert first.size == 1
        return
    assert turned.p == pytest.approx(found.p)
    assert -1 <= found.low <= found.difference <= found.high <= 1
    if abs(found.p - 0.05) > 1e-6:
        assert (found.p < 0.05) == (not found.low <= 0 <= found.high)


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


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(values):
    corrected = holm(values)
    assert all(after >= before for before, after in zip(values, corrected, strict=True))
    assert all(one <= 1 for one in corrected)
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [corrected[index] for index in order] == sorted(corrected)


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


def test_equal_methods_are_not_ranked():
    random = np.random.default_rng(3)
    ranked = 0
    runs = 150
    for _ in range(runs):
        right = 1 / (1 + np.exp(-random.normal(0, 1.5, 60)))
        answers = random.random((5, 3, 60)) < np.clip(right + random.normal(0, 0.03, (5, 3, 1)), 0, 1)
        methods = {str(name): _scores(one.astype(float)) for name, one in enumerate(answers)}
        ranked += set(_compared(methods).ranks.values()) != {(1, 5)}
    # 5 % of 150 is 7.5; 15 and more would come by chance in one of a hundred such tests.
    assert ranked < 15


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
