import math

import pytest

from adaptive_bench.config import load_config
from adaptive_bench.errors import UsageError
from adaptive_bench.store.measured import Documents, MeasuredPoint
from adaptive_bench.tuning import Objective

METRIC, PERPLEXITY = "exact_match,none", "word_perplexity,none"
POINTS = [
    MeasuredPoint(0.0, dial, 1.0, Documents.of([]), {METRIC: score, PERPLEXITY: score}, {"net": saved}, {})
    for dial, score, saved in [(1.0, 0.8, 0.0), (0.8, 0.6, 0.2)]
]


def value(text, levels):
    return Objective.parse(text).value(POINTS, levels, "net", METRIC)


def test_the_objectives_are_of_measured_points():
    assert value("score@0.2", (0.2,)) == 0.6
    assert value("area", (0.0, 0.2)) == pytest.approx(0.7)


def test_a_saving_that_is_not_reached_counts_as_nothing():
    assert value("score@0.3", (0.3,)) == 0.0
    assert value("area", (0.0, 0.2, 0.4)) == pytest.approx((0.8 + 0.6) / 3)


def test_trials_have_the_levels_they_are_compared_at():
    config = load_config("nano", {"levels": [0, 0.1, 0.2]})
    assert Objective.parse("score@0.15").config(config).levels == (0.15,)
    assert Objective.parse("area").config(config) == config


@pytest.mark.parametrize("text", ["area@0.1", "score", "score@1", "largest@0.9", "score@target", "loss"])
def test_another_objective_is_refused(text):
    with pytest.raises(UsageError, match="objective is"):
        Objective.parse(text)


def test_the_scores_of_all_tasks_are_better_in_one_direction():
    lower, higher = PERPLEXITY, METRIC
    Objective.parse("area").check([lower])
    with pytest.raises(UsageError, match="one direction"):
        Objective.parse("area").check([lower, higher])


def test_of_scores_of_which_lower_ones_are_better_the_lowest_is_the_largest_value():
    of = Objective.parse("score@0.1")
    assert of.value(POINTS, (0.2,), "net", PERPLEXITY) == -0.6
    assert Objective.parse("area").value(POINTS, (0.0, 0.5), "net", PERPLEXITY) == -math.inf
