"""Figures whose numbers come from records: what a level is on another axis, ranks, headroom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adaptive_bench.docs.drawing import Drawing

_LEVEL = 0.15  # of saved net FLOPs, at which headroom is written
_TASK = "nano_math"


def axes(record: Mapping[str, Any]) -> Drawing:
    """What one level of net FLOPs is in tokens, by method.

    Args:
        record: `nano_steps.json`.
    """
    rows = sorted(_scores(record), key=lambda row: row["saved_tokens"])
    level = f"{100 * record['level']:g} %"
    bottom = 48 + 26 * len(rows)
    drawing = Drawing(
        430,
        bottom + 66,
        f"For each method, the share of token-branches it skips where it saves {level} of net FLOPs: between "
        f"{100 * rows[0]['saved_tokens']:.0f} % and {100 * rows[-1]['saved_tokens']:.0f} %.",
    )
    left, right = 178, 410

    def place(saved: float) -> float:
        return left + (right - left) * saved / 0.45

    drawing.text(place(record["level"]), 16, f"{level} net", "accent", anchor="middle", bold=True)
    for saved in (0, 0.1, 0.2, 0.3, 0.4):
        drawing.line([(place(saved), 28), (place(saved), bottom)], "rule", width=0.8)
        drawing.text(place(saved), bottom + 16, f"{100 * saved:g}", "faint", anchor="middle", size=11)
    for number, row in enumerate(rows):
        y = 44 + 26 * number
        drawing.text(left - 10, y + 4, row["method"], anchor="end", size=11.5)
        drawing.line([(place(row["saved_net"]), y), (place(row["saved_tokens"]), y)], "second", width=3)
        drawing.dot(place(row["saved_net"]), y)
        drawing.dot(place(row["saved_tokens"]), y, "second", hollow=True)
        drawing.text(place(row["saved_tokens"]) + 9, y + 4, f"{100 * row['saved_tokens']:.1f}", "second", size=11)
    drawing.text(right, bottom + 34, "saved, % of the dense model", "faint", anchor="end", size=11)
    drawing.dot(16, bottom + 52)
    drawing.text(26, bottom + 56, "net FLOPs", size=11)
    drawing.dot(258, bottom + 52, "second", hollow=True)
    drawing.text(268, bottom + 56, "token-branches", size=11)
    return drawing


def ranks(record: Mapping[str, Any]) -> Drawing:
    """Scores with intervals beside the ranks that tests of all pairs leave open.

    Args:
        record: `nano_steps.json`.
    """
    rows = sorted(_scores(record), key=lambda row: -row["score"])
    found = _ranks(record)
    bottom = 46 + 26 * len(rows)
    drawing = Drawing(
        430,
        bottom + 40,
        "Left, scores of methods with 95 % intervals, best first. Right, the ranks that are left open: methods that "
        "no test tells apart share a stretch of ranks.",
    )
    left, middle, start, right = 178, 276, 318, 410

    def at(score: float) -> float:
        return left + (middle - left) * score

    def rank(number: float) -> float:
        return start + (right - start) * (number - 1) / (len(rows) - 1)

    drawing.text(left, 16, "score, %", "accent", bold=True)
    drawing.text(start - 6, 16, "rank", "second", bold=True)
    for score in (0, 0.5, 1):
        drawing.line([(at(score), 26), (at(score), bottom)], "rule", width=0.8)
        drawing.text(at(score), bottom + 16, f"{100 * score:g}", "faint", anchor="middle", size=11)
    for number in range(1, len(rows) + 1):
        drawing.line([(rank(number), 26), (rank(number), bottom)], "rule", width=0.8)
        drawing.text(rank(number), bottom + 16, str(number), "faint", anchor="middle", size=11)
    for number, row in enumerate(rows):
        y = 40 + 26 * number
        drawing.text(left - 10, y + 4, row["method"], anchor="end", size=11.5)
        drawing.line([(at(row["low"]), y), (at(row["high"]), y)], "accent", width=2)
        drawing.dot(at(row["score"]), y)
        low, high = found[row["method"]]
        drawing.box(rank(low) - 6, y - 6, rank(high) - rank(low) + 12, 12, "warm", "second")
    about = f"{_TASK}, {100 * record['level']:g} % of net FLOPs saved, {_about(rows)}"
    drawing.text(8, bottom + 34, about, "faint", size=11)
    return drawing


def _scores(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The methods of one task after the fewest steps."""
    return [row for row in record["scores"] if (row["task"], row["steps"]) == (_TASK, record["steps"][0])]


def _ranks(record: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    (found,) = (
        one["methods"] for one in record["doublings"] if (one["task"], one["steps"]) == (_TASK, record["steps"][0])
    )
    return {method: row["ranks"][0] for method, row in found.items()}


def _about(rows: Sequence[Mapping[str, Any]]) -> str:
    seeds, documents = rows[0]["seeds"], rows[0]["documents"]
    return f"{seeds} seed{'s' if seeds > 1 else ''}, {documents} validation documents"


def headroom(record: Mapping[str, Any]) -> Drawing:
    """The best static sets beside the attainable oracle over sets, by task and level, and what lies between at 15 %.

    Args:
        record: `nano_headroom.json`.
    """
    tasks = record["tasks"]
    drawing = Drawing(
        430,
        300,
        "Score against saved net FLOPs on two tasks: the best static sets of layers, and above or beside them the "
        "oracle that picks a set for every document. The distance at 15 % is the headroom, written with its interval.",
    )
    wide, top, bottom = 150, 56, 214
    for number, task in enumerate(tasks[:2]):
        left = 52 + 212 * number
        levels = [one for one in task["levels"] if one["reached"]]
        last = max(one["level"] for one in levels)

        def place(saved: float, score: float, left: float = left, last: float = last) -> tuple[float, float]:
            return left + wide * saved / last, bottom - (bottom - top) * score

        drawing.text(left, 20, task["task"], bold=True)
        for score in (0, 0.5, 1):
            drawing.line([place(0, score), place(last, score)], "rule", width=0.8)
            drawing.text(left - 6, place(0, score)[1] + 4, f"{100 * score:g}", "faint", anchor="end", size=11)
        for one in levels[1::2]:
            at = place(one["level"], 0)[0]
            drawing.text(at, bottom + 18, f"{100 * one['level']:g}", "faint", anchor="middle", size=11)
        for key, colour in (("static", "ink"), ("cross_fitted", "accent")):
            drawing.line([place(one["level"], one[key]) for one in levels], colour)
            for one in levels:
                drawing.dot(*place(one["level"], one[key]), colour, radius=3)
        (here,) = [one for one in levels if one["level"] == _LEVEL]
        drawing.line([place(_LEVEL, here["static"]), place(_LEVEL, here["cross_fitted"])], "second", width=3)
        found = here["headroom"]
        drawing.text(left, 40, _points(found), "second", bold=True)
    drawing.text(420, bottom + 38, "saved net FLOPs, % of the dense model", "faint", anchor="end", size=11)
    drawing.dot(16, 274, "accent")
    drawing.text(26, 278, "a set for each document (crossed)", size=11)
    drawing.dot(230, 274, "ink")
    drawing.text(240, 278, "the best sets for all", size=11)
    drawing.line([(12, 292), (20, 292)], "second", width=3)
    drawing.text(26, 296, "headroom at 15 %, in points", size=11)
    return drawing


def _points(found: Mapping[str, float]) -> str:
    value, low, high = (f"{100 * found[key]:+.1f}" for key in ("difference", "low", "high"))
    return f"{value} [{low}, {high}]"
