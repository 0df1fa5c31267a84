"""Facts about metrics, in one place."""

import math

import pytest

from adaptive_bench.metric import metric_of


@pytest.mark.parametrize("key", ["exact_match,strict-match", "acc,none", "f1"])
def test_shares_of_right_documents(key):
    metric = metric_of(key)
    assert (metric.better, metric.unit, metric.low, metric.high) == ("higher", "share", 0, 1)


@pytest.mark.parametrize("key", ["bits_per_byte,none", "perplexity"])
def test_uncertainty_is_better_low_and_no_share(key):
    metric = metric_of(key)
    assert (metric.better, metric.unit) == ("lower", "number")


def test_nothing_is_assumed_of_an_unknown_metric():
    metric = metric_of("my_metric,none")
    assert (metric.better, metric.unit, metric.retention(0.5, 1.0)) == ("unknown", "number", None)
    assert (metric.low, metric.high) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("key", "score", "dense", "kept"),
    [
        ("acc,none", 0.6, 0.8, 0.75),
        ("bits_per_byte,none", 1.0, 0.8, 0.8),
        ("acc,none", 0.1, 0.0, None),
        ("acc,none", 0.1, 5e-324, None),
    ],
)
def test_below_one_is_worse_than_dense_whichever_way_is_better(key, score, dense, kept):
    assert metric_of(key).retention(score, dense) == (kept if kept is None else pytest.approx(kept))
