"""The figure of the trials of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptive_bench.docs.drawing import Drawing


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
