"""Dial tables say what measured points say, and no more of a dial than its points show."""

import pytest

from adaptive_bench.tables.dials import dial_tables, immovable

METRIC = "acc,none"


def sweep(points, seed=1, method="mod", task="nano_qa"):
    """`points`: (asked, dial, net saving, scores of documents)."""
    return {
        "method": method,
        "semantics": "bench",
        "task": task,
        "target": None,
        "seed": seed,
        "points": [
            {
                "asked": asked,
                "dial": dial,
                "saved": {"tokens": saved, "core": saved, "net": saved, "decode_net": 0.0},
                "times": {"batch 8": saved / 2},
                "scores": {METRIC: scores},
            }
            for asked, dial, saved, scores in points
        ],
    }


def test_a_line_is_the_mean_of_the_seeds_that_were_asked_the_same():
    first = sweep([(0.0, 1.0, 0.0, "11"), (0.2, 0.5, 0.1, "10")], 1)
    second = sweep([(0.0, 1.0, 0.0, "01"), (0.2, 0.7, 0.3, "00")], 2)
    (table,) = dial_tables([first, second])
    nothing, fifth = table.lines(METRIC)
    assert (nothing.asked, nothing.score) == (0.0, 0.75)
    assert (fifth.asked, fifth.dial, fifth.seeds) == (0.2, (0.5, 0.7), 2)
    assert fifth.saved["net"] == pytest.approx(0.2) and fifth.times["batch 8"] == pytest.approx(0.1)
    assert fifth.score == pytest.approx(0.25)


MOVES = [(0.0, 1.0, 0.0, "11"), (0.2, 0.5, 0.2, "10")]
SAVES_THE_SAME = [(0.0, 1.0, 0.1, "11"), (0.2, 0.5, 0.1005, "10")]
SCORES_THE_SAME = [(0.0, 1.0, 0.0, "10"), (0.2, 0.5, 0.2, "10")]
SCORES_NOTHING = [(0.0, 1.0, -0.1, "00"), (0.2, 0.5, 0.2, "00")]


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (MOVES, []),
        (MOVES[:1], []),  # one dial value is no dial
        ([MOVES[0], MOVES[0]], []),
        (SAVES_THE_SAME, ["The dial of mod cannot move nano_qa: all dial values of a method save the same there."]),
        (
            SCORES_THE_SAME,
            [
                "The dial of mod cannot move the score of nano_qa: at all dial values of a method every document "
                "scores the same, from 0.0 to 20.0 % of saved net FLOPs."
            ],
        ),
        (
            SCORES_NOTHING,
            [
                "The dial of mod cannot move the score of nano_qa: at all dial values of a method every document "
                "scores the same, from -10.0 to 20.0 % of saved net FLOPs, namely 0."
            ],
        ),
    ],
)
def test_a_dial_is_said_to_move_nothing_only_where_its_points_say_so(points, said):
    assert immovable(dial_tables([sweep(points)]), METRIC) == said


def test_one_seed_that_moves_is_enough():
    assert immovable(dial_tables([sweep(SCORES_THE_SAME, 1), sweep(MOVES, 2)]), METRIC) == []
    assert immovable(dial_tables([sweep(SAVES_THE_SAME, 1), sweep(MOVES, 2)]), METRIC) == []


def test_another_document_that_changes_its_score_counts_though_the_mean_stays():
    points = [(0.0, 1.0, 0.0, "10"), (0.2, 0.5, 0.2, "01")]
    assert immovable(dial_tables([sweep(points)]), METRIC) == []


def test_a_phase_that_no_dial_value_moves_is_named_alone():
    found = [sweep(MOVES, method=name) for name in ("mod", "calm")]
    for one in found:
        for point in one["points"]:
            point["saved"] |= {"decode_tokens": 0.0, "decode_core": 0.0}
    (said,) = immovable(dial_tables(found), METRIC)
    assert said.startswith("The dials of mod, calm cannot move the saving of decode on nano_qa")
