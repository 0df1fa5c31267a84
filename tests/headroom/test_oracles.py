"""The oracle per document and its floor, on scores whose truth is known, and its knapsack against a solver."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from adaptive_bench.headroom.oracles import SetScores, at_saving, choose, expected
from adaptive_bench.tables.comparison import paired_difference

COSTS = np.array([1.0, 0.9, 0.8, 0.7])


def _askings(truths, seed, documents=400):
    """Right-or-wrong scores [D, K] in two askings, drawn with the given probabilities [D, K]."""
    draw = np.random.default_rng(seed)
    chances = np.broadcast_to(truths, (documents, len(COSTS)))
    halves = [(draw.random(chances.shape) < chances).astype(float) for _ in range(2)]
    priors = (draw.random(chances.shape) < chances).mean(axis=0)
    return SetScores(halves, [], priors, COSTS)


def test_noise_fools_the_gold_oracle_and_not_the_crossed_one():
    """T-OR5: all sets score alike and documents differ by luck."""
    crossed_intervals, gold = [], []
    for seed in range(20):
        read = at_saving(_askings(np.full(4, 0.6), seed), 0.15)
        found = paired_difference(read.crossed[None], read.floor[None])
        crossed_intervals.append(found.low <= 0 <= found.high)
        gold.append(paired_difference(read.gold[None], read.floor[None]))
    assert all(one.low > 0.2 for one in gold)
    assert sum(crossed_intervals) >= 17
    read = [at_saving(_askings(np.full(4, 0.6), seed), 0.15) for seed in range(100)]
    assert abs(np.mean([(one.crossed - one.floor).mean() for one in read])) < 0.005


def test_documents_that_differ_give_the_crossed_oracle_its_headroom():
    """Half of the documents need every layer, the others none in particular: known documents keep everything."""
    hard = np.array([1.0, 0.0, 0.0, 0.0])
    truths = np.where((np.arange(400) % 2 == 0)[:, None], hard, np.ones(4))
    read = at_saving(_askings(truths, 0), 0.15)
    assert read.crossed.mean() == pytest.approx(1.0)
    assert read.floor.mean() == pytest.approx(0.75, abs=0.03)  # half of the documents at 0.3 saved
    assert paired_difference(read.crossed[None], read.floor[None]).low > 0.15


def test_the_floor_is_chosen_on_validation_documents():
    scores = np.array([[1.0, 0.0, 1.0, 0.0]] * 10)
    read = at_saving(SetScores([scores], [], np.array([1.0, 0.9, 0.5, 0.2]), COSTS), 0.1)
    assert read.weights.tolist() == [0.0, 1.0, 0.0, 0.0]  # test documents prefer the third
    assert read.floor.tolist() == [0.0] * 10
    read = at_saving(SetScores([scores], [], np.array([1.0, 0.9, 0.5, 0.2]), COSTS), 0.05)
    assert read.weights == pytest.approx([0.5, 0.5, 0.0, 0.0])  # as many documents with either as it takes


def test_guesses_that_repeat_themselves_are_no_headroom():
    """Every set guesses one of four in its own way, and the same when asked again: gold crosses over, agreement not."""
    draw = np.random.default_rng(0)
    guesses, right = draw.integers(0, 4, (400, 4)), draw.integers(0, 4, 400)
    scores = (guesses == right[:, None]).astype(float)
    agrees = (guesses == guesses[:, :1]).astype(float)
    read = at_saving(SetScores([scores] * 2, [agrees] * 2, np.full(4, 0.25), COSTS), 0.1)
    by_gold = at_saving(SetScores([scores] * 2, [], np.full(4, 0.25), COSTS), 0.1)
    assert by_gold.crossed.mean() > 0.5
    assert abs(read.crossed.mean() - 0.25) < 0.07
    found = paired_difference(read.crossed[None], read.floor[None])
    assert found.low <= 0


def test_what_is_out_of_reach_and_one_asking_have_no_readings():
    found = _askings(np.full(4, 0.5), 0)
    assert at_saving(found, 0.31) is None
    assert at_saving(SetScores(found.scores[:1], [], found.priors, COSTS), 0.1).crossed is None


TABLES = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda shape: st.tuples(
        arrays(float, shape, elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        arrays(float, shape[1], elements=st.integers(1, 5).map(float)),
        st.floats(1.0, 5.0),
    )
)


@given(TABLES)
def test_the_value_is_that_of_the_linear_programme_and_at_most_a_step_above_whole_choices(table):
    scores, costs, budget = table
    weights = choose(scores, costs, budget)
    whole = [
        np.mean([row[k] for row, k in zip(scores, ks, strict=True)])
        for ks in product(range(len(costs)), repeat=len(scores))
        if np.mean([costs[k] for k in ks]) <= budget + 1e-9
    ]
    if weights is None:
        assert not whole
        return
    assert weights.sum(axis=1) == pytest.approx(1.0)
    assert (weights >= -1e-12).all()
    assert (weights @ costs).mean() <= budget + 1e-9
    assert (np.isclose(weights.max(axis=1), 1.0)).sum() >= len(scores) - 1
    value = expected(weights, scores).mean()
    count = len(scores)
    rows = np.kron(np.eye(count), np.ones(len(costs)))
    solved = linprog(
        -scores.flatten() / count,
        A_ub=[np.tile(costs, count) / count],
        b_ub=[budget],
        A_eq=rows,
        b_eq=np.ones(count),
        bounds=(0, 1),
    )
    assert value == pytest.approx(-solved.fun, abs=1e-7)
    assert max(whole) - 1e-9 <= value <= max(whole) + 1.0 / count + 1e-9


def test_of_equal_scores_the_cheaper_candidate_is_taken():
    assert choose([[1.0, 1.0, 1.0]], [3.0, 2.0, 4.0], 9.0).tolist() == [[0.0, 1.0, 0.0]]
