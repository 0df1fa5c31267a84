"""The rules that turn scores into decisions, on numbers small enough to check by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench.method import drop_lowest, drop_lowest_per_row, paper_quantile_keep, top_k_per_row
from adaptive_bench.method.decisions import _quantile

FOUR = torch.tensor([[3.0, 1.0, 4.0, 2.0]])
ALL = torch.ones(1, 4, dtype=torch.bool)


def quantile_threshold(values, q):
    return float(_quantile(values, torch.ones_like(values, dtype=torch.bool), q))


def test_quantile_threshold_by_hand():
    """T-GS14, golden: 1, 2, 3, 4 at q=.25 gives 1.75; at 0 the minimum; at 1 the maximum (index clamped, G7)."""
    assert quantile_threshold(FOUR[0], 0.25) == 1.75
    assert quantile_threshold(FOUR[0], 0.0) == 1.0
    assert quantile_threshold(FOUR[0], 0.5) == 2.5
    assert quantile_threshold(FOUR[0], 1.0) == 4.0
    assert quantile_threshold(torch.tensor([0.7]), 0.3) == pytest.approx(0.7)
    assert quantile_threshold(torch.tensor([2.0, 2.0, 2.0]), 0.3) == 2.0


@pytest.mark.parametrize(
    ("count", "percent"),
    [
        (1, (100, 100, 100, 100, 100)),
        (2, (50, 50, 50, 50, 50)),
        (4, (25, 25, 25, 25, 50)),
        (8, (12.5, 12.5, 25, 25, 62.5)),
        (32, (3.1, 6.2, 15.6, 25, 59.4)),
        (128, (0.8, 5.5, 15.6, 25, 60.2)),
    ],
)
def test_share_the_paper_rule_really_skips(count, percent):
    """T-GS14: the table of methods.md 2.6, for 0, 5, 15, 25, 60 % requested."""
    scores = torch.randperm(count, generator=torch.Generator().manual_seed(0))[None] / count
    active = torch.ones_like(scores, dtype=torch.bool)
    for q, wanted in zip((0.0, 0.05, 0.15, 0.25, 0.6), percent, strict=True):
        skipped = 100 * (1 - paper_quantile_keep(scores, active, q).float().mean().item())
        assert skipped == pytest.approx(wanted, abs=0.06)


def test_paper_rule_compares_exactly():
    """G8: a threshold between two neighbouring floats is equal to neither; one that falls on a score is that score."""
    lower = torch.tensor(0.7)
    upper = torch.nextafter(lower, torch.tensor(1.0))
    scores = torch.stack([lower, upper, torch.tensor(0.9)])[None]
    assert paper_quantile_keep(scores, ALL[:, :3], 0.4).tolist() == [[False, True, True]]
    tied = torch.tensor([[0.1, 0.3, 0.3, 0.9]])
    assert paper_quantile_keep(tied, ALL, 0.4).tolist() == [[False, False, False, True]]
    many = torch.arange(101.0)[None]
    kept = paper_quantile_keep(many, torch.ones_like(many, dtype=torch.bool), 0.57)  # 0.57 * 100 < 57 in floats
    assert int(kept.sum()) == 43


def test_drop_lowest_by_hand():
    """G4, G5, G6: exactly floor(q n), earlier tokens first in ties, nothing at q=0."""
    assert drop_lowest(FOUR, ALL, 0.25).tolist() == [[True, False, True, True]]
    assert drop_lowest(FOUR, ALL, 0.49).tolist() == [[True, False, True, True]]
    assert drop_lowest(FOUR, ALL, 0.0).all()
    assert not drop_lowest(FOUR, ALL, 1.0).any()
    assert drop_lowest(torch.ones(1, 4), ALL, 0.5).tolist() == [[False, False, True, True]]
    assert drop_lowest(FOUR[:, :1], ALL[:, :1], 0.9).all()  # floor(0.9) of one token


def test_top_k_by_hand():
    """T-MoD1: k = max(1, floor(c S)) of each row's real tokens, earlier tokens first in ties."""
    assert top_k_per_row(FOUR, ALL, 0.5).tolist() == [[True, False, True, False]]
    assert top_k_per_row(FOUR, ALL, 0.01).tolist() == [[False, False, True, False]]
    assert top_k_per_row(torch.ones(1, 4), ALL, 0.5).tolist() == [[True, True, False, False]]
    ragged = torch.tensor([[False, True, True, True], [False, False, False, False]])
    kept = top_k_per_row(torch.tensor([[9.0, 1, 2, 3], [1, 2, 3, 4]]), ragged, 0.7)
    assert kept.tolist() == [[False, False, True, True], [False] * 4]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    scores=st.lists(st.sampled_from([-1.5, 0.0, 0.2, 0.68, 0.681, 3.0]), min_size=12, max_size=12),
    active=st.lists(st.booleans(), min_size=12, max_size=12),
    share=st.floats(0, 1),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_counts_are_exact_whatever_the_ties(scores, active, share, uniform):
    """G5, G6, T-MoD1: all rank rules keep an exact count, only active tokens, never a lower score over a higher."""
    scores, active = torch.tensor(scores).view(2, 6), torch.tensor(active).view(2, 6)
    dropped = drop_lowest(scores, active, share)
    assert not (dropped & ~active).any()
    assert int((active & ~dropped).sum()) == math.floor(share * int(active.sum()) + 1e-9)
    if dropped.any() and (active & ~dropped).any():
        assert scores[dropped].min() >= scores[active & ~dropped].max()

    kept = top_k_per_row(scores, active, max(share, 0.01))
    rest = drop_lowest_per_row(scores, active, share, torch.full((2,), uniform))
    assert not (kept & ~active).any()
    for row in range(2):
        length = int(active[row].sum())
        alone = (scores[row : row + 1], active[row : row + 1], math.floor(share * length + uniform) / max(length, 1))
        assert torch.equal(rest[row : row + 1], drop_lowest(*alone))
        assert int(kept[row].sum()) == (max(1, math.floor(max(share, 0.01) * length + 1e-9)) if length else 0)


def test_shares_that_are_no_binary_fractions():
    """Capacities such as 0.7 of 10 tokens mean 7, not 6 by rounding error."""
    scores, active = torch.arange(10.0)[None], torch.ones(1, 10, dtype=torch.bool)
    for tenth in range(1, 10):
        assert int(top_k_per_row(scores, active, 1 - (1 - tenth / 10)).sum()) == tenth
        assert int((~drop_lowest(scores, active, 1 - (1 - tenth / 10))).sum()) == tenth
