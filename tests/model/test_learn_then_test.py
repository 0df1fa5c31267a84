"""Learn then Test against its formulas, its guarantee, and on a model that exits early."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from adaptive_bench.errors import UsageError
from adaptive_bench.model.learn_then_test import certified_dial, hoeffding_bentkus

DIALS = [1.0, 0.75, 0.5, 0.25, 0.0]


def test_p_values_by_hand():
    """No difference in 40 documents at 0.1: Hoeffding's (1 - 0.1)^40, which is below e times the same."""
    assert hoeffding_bentkus(0.0, 40, 0.1) == pytest.approx(0.9**40)
    assert hoeffding_bentkus(0.1, 40, 0.1) == 1.0
    assert hoeffding_bentkus(0.5, 40, 0.1) == 1.0
    kl = 0.05 * math.log(0.05 / 0.1) + 0.95 * math.log(0.95 / 0.9)
    assert hoeffding_bentkus(0.05, 400, 0.1) == pytest.approx(
        min(math.exp(-400 * kl), math.e * binom.cdf(20, 400, 0.1))
    )


@pytest.mark.parametrize("count", [20, 100])
def test_a_true_null_is_rejected_no_more_often_than_said(count):
    """Exactly, over all outcomes of documents that differ with the very probability of the bound."""
    bound, rate = 0.2, 0.1
    outcomes = np.arange(count + 1)
    rejected = [hoeffding_bentkus(wrong / count, count, bound) <= rate for wrong in outcomes]
    assert 0 < binom.pmf(outcomes, count, bound)[rejected].sum() <= rate


@pytest.fixture
def prompts(random_text):
    return [row.tolist() for row in random_text(24, 6)]


def test_testing_stops_at_the_first_dial_that_differs_too_much(shared_model, prompts):
    model = shared_model("calm")
    model.dial = 0.3
    found = certified_dial(model, prompts, DIALS, tolerance=0.3, error_rate=0.05, max_new_tokens=4)
    assert model.dial == 0.3
    passed = [one.dial for one in found.tested if one.p <= 0.05]
    assert passed == DIALS[: len(passed)] and len(found.tested) == len(passed) + 1 < len(DIALS) + 1
    assert found.dial == (passed[-1] if passed else model.method.dial.skip_nothing)
    assert found.tested[0].dissimilarity == 0.0  # hardly anybody is that sure: the texts are those at full depth
    assert found.dial == passed[-1]


def test_too_few_documents_certify_nothing(shared_model, prompts):
    model = shared_model("calm")
    found = certified_dial(model, prompts[:3], DIALS, tolerance=0.1, error_rate=0.05, max_new_tokens=2)
    assert found.dial == model.method.dial.skip_nothing and len(found.tested) == 1


@pytest.mark.parametrize("changes", [{"tolerance": 0.0}, {"error_rate": 1.0}])
def test_what_is_no_share_is_refused(shared_model, prompts, changes):
    with pytest.raises(UsageError, match="share between 0 and 1"):
        certified_dial(
            shared_model("calm"), prompts, DIALS, max_new_tokens=2, **({"tolerance": 0.1, "error_rate": 0.1} | changes)
        )


def test_no_prompts_are_refused(shared_model):
    with pytest.raises(UsageError, match="got none"):
        certified_dial(shared_model("calm"), [], DIALS, tolerance=0.1, error_rate=0.1, max_new_tokens=2)
