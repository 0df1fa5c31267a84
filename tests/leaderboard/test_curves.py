import pytest

from adaptive_bench.leaderboard.curves import add_curves, area, reaches
from adaptive_bench.leaderboard.row import Row


def with_curves(rows):
    found = [Row.of(row) for row in rows]
    add_curves(found)
    return found


def test_the_area_of_a_line_is_its_mean_and_has_no_holes():
    assert area([0.0, 0.1, 0.3], [1.0, 0.8, 0.4]) == pytest.approx(0.7)
    assert area([0.0, 0.1, 0.3], [1.0, None, 0.4]) is None
    assert area([0.1], [0.5]) == 0.5


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ([1.0, 0.8], (0.05, False)),
        ([1.0, 0.95], (0.1, True)),
        ([0.89, 0.95], (None, None)),
        ([1.0, None], (0.0, True)),
        ([None, None], (None, None)),
    ],
)
def test_how_far_90_percent_reach(kept, expected):
    found = reaches([0.0, 0.1], kept)
    assert found == (pytest.approx(expected[0]), expected[1])


def test_what_is_kept_of_the_dense_score_and_of_the_own(make_row):
    dense = make_row(method="dense", level=0.0, score=0.8, phase="all")
    rows = [make_row(level=0.0, score=0.6, low=0.4, high=0.8), make_row(level=0.1, score=0.3, low=None, high=None)]
    first, second = with_curves([dense, *rows])[1:]
    assert first.kept == pytest.approx(0.75) and second.kept == pytest.approx(0.375)
    assert (first.kept_low, first.kept_high) == (pytest.approx(0.5), pytest.approx(1.0))
    assert second.kept_low is None
    assert second.kept_own == pytest.approx(0.5)


def test_where_lower_is_better_the_interval_of_what_is_kept_is_turned_round(make_row):
    facts = {"metric": "bits_per_byte,none", "level": 0.0}
    rows = [make_row(method="dense", score=1.0, **facts), make_row(score=2.0, low=1.25, high=4.0, **facts)]
    found = with_curves(rows)[1]
    assert (found.kept_low, found.kept, found.kept_high) == (0.25, 0.5, 0.8)


def test_runs_that_disagree_have_a_dense_score_each(make_row):
    rows = [
        make_row(method=method, run=run, level=0.0, score=score)
        for run, dense in (("a", 0.5), ("b", 1.0))
        for method, score in (("dense", dense), ("mod", 0.5))
    ]
    assert [row.kept for row in with_curves(rows)] == [1.0, 1.0, 1.0, 0.5]
