"""A board whose methods have the scores of documents at many savings, for what is said of them."""

import numpy as np

from adaptive_bench.leaderboard.answers import Answers, SweptAnswers
from adaptive_bench.leaderboard.frame import board_of
from adaptive_bench.leaderboard.row import checked

METRIC = "exact_match,strict-match"
TRAINED, UNTRAINED = "static_depth[trained=true]", "static_depth"
# Rows of a run whose methods leave out layers.
SPARING = {"mod": {"eligible": "layers 1, 3"}, "random_skip": {"eligible": "layers 0-3"}}
FEW = {0.0: 99, 0.11: 20, 0.22: 98}  # right of 100 documents, at three savings
DENSE_SWEEP = tuple(number / 100 for number in range(0, 31))


def board_maker(make_row):
    """Methods with what they get right, of 100 documents, at measured savings; three seeds, rows at 0 and 15 %."""

    def make(curves, axis="net", rows=None):
        """`curves`: by method a number for every saving, or numbers by saving; `rows`: by method more of its rows."""
        found, answers = [], Answers()
        for method, curve in curves.items():
            points = dict.fromkeys(DENSE_SWEEP, curve) if isinstance(curve, int) else curve
            savings = sorted(points)
            measured = tuple(
                ({axis: saving}, {}, {METRIC: (np.arange(100) < points[saving]).astype(float)}) for saving in savings
            )
            place = (method, "bench", "nano_math", None)
            answers.sweeps[place] = [
                SweptAnswers(seed, tuple(range(100)), measured, tuple(savings)) for seed in (1, 2, 3)
            ]
            for level in (0.0, 0.15):
                about = {"method": method, "axis": axis, "level": level, "saved_net": 0.15, "saved_tokens": 0.2}
                about |= (rows or {}).get(method, {})
                if savings[0] <= level <= savings[-1]:
                    score = float(np.interp(level, savings, [points[saving] / 100 for saving in savings]))
                    below, above = max(s for s in savings if s <= level), min(s for s in savings if s >= level)
                    about |= {"gap": above - below, "distance": max(level - below, above - level)}
                    found.append(checked(make_row(**about | {"score": score, "low": 0.0, "high": 1.0})))
        return board_of(found, answers={"run": answers})

    return make


def section(text, title):
    """The sentences under a title; empty without it."""
    return text.partition(f"## {title}\n\n")[2].partition("\n\n## ")[0].rstrip()
