"""Facts about metrics, in one place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.metric import metric_of

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e6)


@pytest.mark.parametrize("key", ["exact_match,strict-match", "acc,none", "acc_norm,none", "exact_match"])
def test_shares_of_right_documents(key):
    metric = metric_of(key)
    assert (metric.better, metric.unit, metric.low, metric.high) == ("higher", "share", 0, 1)
    assert metric.counts_documents


@pytest.mark.parametrize("key", ["bits_per_byte,none", "word_perplexity,none", "perplexity,none", "byte_perplexity"])
def test_uncertainty_is_better_low_and_no_share(key):
    metric = metric_of(key)
    assert (metric.better, metric.unit, metric.counts_documents) == ("lower", "number", False)


def test_an_f1_is_a_share_but_of_no_documents():
    assert metric_of("f1,none").unit == "share" and not metric_of("f1,none").counts_documents


def test_nothing_is_assumed_of_an_unknown_metric():
    metric = metric_of("my_metric,none")
    assert (metric.better, metric.unit, metric.retention(0.5, 1.0)) == ("unknown", "number", None)
    assert metric.bounded(-7.0) == -7.0


@pytest.mark.parametrize(
    ("key", "score", "dense", "kept"),
    [("acc,none", 0.6, 0.8, 0.75), ("bits_per_byte,none", 1.0, 0.8, 0.8), ("acc,none", 0.1, 0.0, None)],
)
def test_below_one_is_worse_than_dense_whichever_way_is_better(key, score, dense, kept):
    assert metric_of(key).retention(score, dense) == (kept if kept is None else pytest.approx(kept))


@given(NUMBERS, st.sampled_from(["acc", "bits_per_byte", "perplexity", "mcc", "unheard_of"]))
def test_a_bounded_value_lies_in_the_range_and_moves_only_if_it_must(value, key):
    metric = metric_of(key)
    assert metric.low <= metric.bounded(value) <= metric.high
    if metric.low <= value <= metric.high:
        assert metric.bounded(value) == value
