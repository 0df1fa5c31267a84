"""One candidate per sequence under a mean cost, against brute force and a solver of linear programmes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from adaptive_bench.errors import UsageError
from adaptive_bench.headroom.knapsack import choose, expected

TABLES = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda shape: st.tuples(
        arrays(float, shape, elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        arrays(float, shape[1], elements=st.integers(1, 5).map(float)),
        st.floats(1.0, 5.0),
    )
)


def _value(scores, costs, budget):
    weights = choose(scores, costs, budget)
    return None if weights is None else float(expected(weights, scores).mean())


def test_the_example_of_two_candidates():
    scores, costs = [[0.5, 0.9], [0.9, 0.9]], [2.0, 4.0]
    assert _value(scores, costs, 2.0) == pytest.approx(0.7)
    assert _value(scores, costs, 3.0) == pytest.approx(0.9)
    assert _value(scores, costs, 1.9) is None


def test_one_candidate_has_its_own_score():
    assert _value([[0.2], [0.6]], [3.0], 3.0) == pytest.approx(0.4)
    assert _value([[0.2], [0.6]], [3.0], 9.0) == pytest.approx(0.4)


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


@given(TABLES, st.floats(0.0, 3.0))
def test_more_budget_is_never_worse(table, more):
    scores, costs, budget = table
    less = _value(scores, costs, budget)
    if less is not None:
        assert _value(scores, costs, budget + more) >= less - 1e-9


def test_of_equal_scores_the_cheaper_candidate_is_taken():
    assert choose([[1.0, 1.0, 1.0]], [3.0, 2.0, 4.0], 9.0).tolist() == [[0.0, 1.0, 0.0]]


def test_a_cost_for_each_candidate_is_asked_for():
    with pytest.raises(UsageError, match="a cost for each column"):
        choose([[1.0, 2.0]], [1.0], 1.0)
