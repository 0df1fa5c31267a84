"""Facts about metrics, in one place."""

import math

import pytest

from adaptive_bench.metric import metric_of


@pytest.mark.parametrize(
    ("key", "better", "unit"),
    [
        ("exact_match,strict-match", "higher", "share"),
        ("acc,none", "higher", "share"),
        ("f1", "higher", "share"),
        ("bits_per_byte,none", "lower", "number"),
        ("perplexity", "lower", "number"),
        ("my_metric,none", "unknown", "number"),  # nothing is assumed
    ],
)
def test_which_way_is_better(key, better, unit):
    metric = metric_of(key)
    assert (metric.better, metric.unit) == (better, unit)
    assert better != "higher" or (metric.low, metric.high) == (0, 1)
    assert better != "unknown" or (metric.low, metric.high) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("key", "score", "dense", "kept"),
    [
        ("acc,none", 0.6, 0.8, 0.75),
        ("bits_per_byte,none", 1.0, 0.8, 0.8),
        ("acc,none", 0.1, 0.0, None),
        ("acc,none", 0.1, 5e-324, None),
        ("my_metric,none", 0.5, 1.0, None),
    ],
)
def test_below_one_is_worse_than_dense_whichever_way_is_better(key, score, dense, kept):
    assert metric_of(key).retention(score, dense) == (kept if kept is None else pytest.approx(kept))
