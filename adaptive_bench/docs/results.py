"""Figures of results: trials of a study, and which methods are ahead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from adaptive_bench.docs.drawing import Drawing

_ROW = re.compile(r"^\| `(?P<method>[^`]+)` \| (?P<score>[\d.]+)\S* \[(?P<low>[\d.]+), (?P<high>[\d.]+)\] % \| "
                  r"(?P<first>\d+)(?: to (?P<last>\d+))? \|$", re.MULTILINE)  # fmt: skip
_TASK = re.compile(r"^\*\*(\S+)\*\* by saved net FLOPs:\n\n(.*?)\n\n", re.MULTILINE | re.DOTALL)

_CHARACTER = 6.2  # px that a character of a name takes at most, at size 11


def trials(record: Mapping[str, Any]) -> Drawing:
    """What each trial of a study scored, by method, and which one stands after the best was trained again.

    Args:
        record: `nano_trials.json`.
    """
    found = sorted(_trials(record).items(), key=lambda item: -max(value for value, *_ in item[1]))
    bottom = 40 + 30 * len(found)
    drawing = Drawing(
        430,
        bottom + 82,
        "For each method, the objective of its five trials on validation documents. The best trial and the defaults "
        "were trained again with other seeds, and the better mean of the two is used on the board.",
    )
    left, right = 130, 414

    def place(value: float) -> float:
        return left + (right - left) * value

    for value in (0, 0.25, 0.5, 0.75, 1):
        drawing.line([(place(value), 22), (place(value), bottom)], "rule", width=0.8)
        drawing.text(place(value), bottom + 16, f"{value:g}", "faint", anchor="middle", size=11)
    confirmed = {(one["method"], one["number"] > 0): one["value"] for one in record["confirmed"]}
    for number, (method, values) in enumerate(found):
        y = 38 + 30 * number
        drawing.text(left - 12, y + 4, method, anchor="end", size=11.5)
        for value, is_default, pruned in values:
            if not is_default:
                drawing.dot(place(value), y, "faint" if pruned else "accent", radius=3.5)
        for value, is_default, _ in values:
            if is_default:
                drawing.dot(place(value), y, "ink", hollow=True, radius=5)
        standing = record["best"][method] != method
        if (again := confirmed.get((method, standing))) is not None:
            drawing.diamond(place(again), y)
    drawing.text(right, bottom + 34, "mean score over the levels, validation", "faint", anchor="end", size=11)
    drawing.dot(16, bottom + 52, "ink", hollow=True, radius=5)
    drawing.text(28, bottom + 56, "the method as it is", size=11)
    drawing.dot(160, bottom + 52, radius=3.5)
    drawing.text(170, bottom + 56, "another trial", size=11)
    drawing.dot(262, bottom + 52, "faint", radius=3.5)
    drawing.text(272, bottom + 56, "stopped by the median", size=11)
    drawing.diamond(16, bottom + 70)
    drawing.text(28, bottom + 74, "what stands, trained again with other seeds", size=11)
    return drawing


def _trials(record: Mapping[str, Any]) -> dict[str, list[tuple[float, bool, bool]]]:
    """By method of each trial its value, whether it is the defaults, and whether it was stopped."""
    found: dict[str, list[tuple[float, bool, bool]]] = {}
    for one in record["trials"]:
        if one["value"] is not None:
            found.setdefault(one["method"], []).append((one["value"], one["number"] == 0, one["state"] == "pruned"))
    return found


class Ahead(NamedTuple):
    """A method's row under "Which methods are ahead": score and interval in percent, best and worst rank."""

    method: str
    score: float
    low: float
    high: float
    first: int
    last: int


def ahead_in(page: str) -> dict[str, list[Ahead]]:
    """By task the rows of the tables of a page that `leaderboard findings` wrote, of tasks scored in percent."""
    found: dict[str, list[Ahead]] = {}
    for task, table in _TASK.findall(page):
        for one in _ROW.finditer(f"{table}\n"):
            score, low, high = (float(one[key]) for key in ("score", "low", "high"))
            first = int(one["first"])
            row = Ahead(one["method"], score, low, high, first, int(one["last"] or first))
            found.setdefault(task.replace("\\", ""), []).append(row)
    return found


def ahead(page: str) -> Drawing:
    """Methods of each task, best first, with intervals and the ranks that tests leave open.

    Args:
        page: The text of `findings.md`, whose numbers these are.
    """
    tasks = ahead_in(page)
    names = max(len(row.method) for rows in tasks.values() for row in rows)
    left = 24 + round(_CHARACTER * names)
    right, ranks = left + 180, left + 236
    height = sum(58 + 18 * len(rows) for rows in tasks.values()) + 24
    drawing = Drawing(
        ranks + 8,
        height,
        f"Scores with 95 % intervals of all methods at 15 % saved net FLOPs on {' and '.join(tasks)}, best first, and "
        f"beside them the ranks that tests of all pairs leave open.",
    )

    def place(score: float) -> float:
        return left + (right - left) * score / 100

    top = 0
    for task, rows in tasks.items():
        bottom = top + 34 + 18 * len(rows)
        drawing.text(8, top + 18, task, bold=True)
        drawing.text(ranks, top + 18, "rank", "second", anchor="end", bold=True, size=11)
        for score in (0, 50, 100):
            drawing.line([(place(score), top + 26), (place(score), bottom)], "rule", width=0.8)
            drawing.text(place(score), bottom + 14, f"{score}", "faint", anchor="middle", size=11)
        for number, row in enumerate(rows):
            y = top + 36 + 18 * number
            drawing.text(left - 10, y + 4, row.method, anchor="end", size=11)
            drawing.line([(place(row.low), y), (place(row.high), y)], "accent", width=2)
            drawing.dot(place(row.score), y, radius=3.5)
            told = f"{row.first}" if row.first == row.last else f"{row.first}–{row.last}"
            drawing.text(ranks, y + 4, told, "second", anchor="end", size=11)
        top = bottom + 24
    drawing.text(right, height - 10, "score at 15 % saved net FLOPs, %", "faint", anchor="end", size=11)
    return drawing
