import pytest

from adaptive_bench.cli.headroom import verdict
from adaptive_bench.leaderboard.frame import board_of
from adaptive_bench.leaderboard.row import checked


@pytest.fixture
def said(make_row):
    def make(**scores):
        rows = [make_row(method="dense", level=0.0, score=1.0, low=0.95, high=1.0, phase="all")]
        for method, given in scores.items():
            score, spread = given if isinstance(given, tuple) else (given, 0.05)
            ends = (
                {"low": None, "high": None, "status": "outside"}
                if score is None
                else {"low": score - spread, "high": min(score + spread, 1.0)}
            )
            rows.append(make_row(method=method, level=0.15, score=score, phase="all", **ends))
        return verdict(board_of(map(checked, rows)), "net")

    return make


def test_the_best_method_is_named_with_its_interval(said):
    text = said(random_skip=0.2, mod=0.8, calm=0.5)
    assert text.startswith("At 15 % saved net FLOPs, on nano_math mod keeps 80.0 % [75.0, 85.0] of the dense score")
    assert "ahead of random skipping, and ahead of every other method" in text


def test_a_method_whose_interval_overlaps_the_leader_s_is_not_ranked_behind_it(said):
    text = said(random_skip=0.2, mod=0.8, calm=0.75)
    assert "calm is not told apart" in text and "every other method" not in text


def test_a_leader_that_is_not_separated_from_random_skipping_hides_no_method_that_is(said):
    text = said(random_skip=0.6, mod=(0.8, 0.3), calm=0.75)
    assert "mod keeps 80.0 % [50.0, 100.0] of the dense score, but is not certainly ahead of random skipping" in text
    assert "the best of those that are is calm, which keeps 75.0 % [70.0, 80.0]" in text


def test_nothing_is_claimed_where_random_skipping_is_as_good(said):
    assert "no method is certainly ahead of random skipping" in said(random_skip=0.75, mod=0.8)


def test_without_random_skipping_it_says_so(said):
    assert "no random skipping to compare with" in said(mod=0.8)


def test_without_random_skipping_a_method_behind_static_depth_is_said_to_be_not_ahead_of_it(said):
    text = said(mod=0.4, static_depth=0.8)
    assert "no random skipping to compare with, and not ahead of the control static_depth" in text
    assert "not ahead" not in said(mod=0.8, static_depth=0.4)


def test_where_every_score_is_zero_no_method_is_named(said):
    text = said(mod=(0.0, 0.0), calm=(0.0, 0.0), random_skip=(0.0, 0.0))
    assert text.startswith("At 15 % saved net FLOPs, on nano_math every score is 0")
    assert "mod" not in text and "random skipping" not in text
    assert "every score is 0" not in said(mod=(0.0, 0.0), static_depth=0.2)


def test_without_a_score_there_is_no_claim(said):
    assert said(mod=None) == "No method reached a level above 0 % on the axis saved net FLOPs."


def test_where_lower_is_better_the_lowest_leads(make_row):
    facts = {"metric": "bits_per_byte,none", "phase": "all"}
    rows = [make_row(method="dense", level=0.0, score=1.0, low=1.0, high=1.0, **facts)]
    for method, score in (("random_skip", 3.0), ("mod", 1.25), ("calm", 2.0)):
        rows.append(make_row(method=method, level=0.15, score=score, low=score - 0.1, high=score + 0.1, **facts))
    assert "mod keeps 80.0 %" in verdict(board_of(map(checked, rows)), "net")
