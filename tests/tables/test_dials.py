"""Dial tables say what measured points say."""

import pytest

from adaptive_bench.tables.dials import dial_tables

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
