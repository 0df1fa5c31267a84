"""Facts about metrics, in one place."""

import math

import pytest

from adaptive_bench.task import metric_of


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
