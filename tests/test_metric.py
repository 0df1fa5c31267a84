"""Facts about metrics, in one place."""

import math

import pytest

from adaptive_bench.metric import metric_of


def test_what_is_known_of_a_metric():
    for key in ("exact_match,strict-match", "acc,none", "acc_norm,none", "exact_match", "f1,none"):
        metric = metric_of(key)
        assert (metric.better, metric.unit, metric.low, metric.high) == ("higher", "share", 0, 1)
    for key in ("bits_per_byte,none", "word_perplexity,none", "perplexity,none", "byte_perplexity"):
        assert (metric_of(key).better, metric_of(key).unit) == ("lower", "number")
    unknown = metric_of("my_metric,none")
    assert (unknown.better, unknown.unit, unknown.retention(0.5, 1.0)) == ("unknown", "number", None)
    assert (unknown.low, unknown.high) == (-math.inf, math.inf)


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
