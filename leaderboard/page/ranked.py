"""The ranked tables of a board as texts, and the sentence above each of them."""

from __future__ import annotations

from typing import Any

from ..answer import answer
from ..groups import Group
from ..marks import marks as marks_of
from ..numbers import number, percent
from ..provenance import measured_earlier
from ..row import Row
from ..standing import Line, Standing, preferred, standings
from ..tables import NONE


def ranked(group: Group) -> list[dict[str, Any]]:
    """Of every axis, phase, setting and level the sentence, what it rests on, and the lines of the table.

    `earlier` says which methods were measured by other code. A line has `label`, `control`, `at` (the level it is read
    at), `rank`, `overall` with its ends, `lost`, `times`, and by task of `tasks` the score, its ends, the share of the
    dense score with its ends, and marks.
    """
    found, earlier = [], measured_earlier(group.board.folders)
    for standing in standings(group.board):
        said = answer(group.board, standing, featured=group.featured)
        settings = list(dict.fromkeys(name for line in standing.lines for name in line.times or ()))
        found.append(
            {
                "axis": standing.axis,
                "phase": standing.phase,
                "setting": standing.setting,
                "level": _level(standing.level),
                "said": said.text,
                "leader": said.leader,
                "evidence": said.evidence,
                "tasks": [grid.name for grid in standing.tasks],
                "compared": [grid.compared for grid in standing.tasks],
                "left_out": standing.left_out,
                "earlier": earlier,
                "settings": settings,
                "asked": any(line.asked for line in standing.lines),
                "unmeasured": _unmeasured(standing, settings),
                "lines": [_line(line, settings) for line in standing.lines],
            }
        )
    return found


def views_of(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By axis what a reader can choose, and the level that is shown first."""
    views: dict[str, dict[str, Any]] = {}
    for one in found:
        view = views.setdefault(one["axis"], {"phases": [], "settings": [], "levels": []})
        for key, value in (("phases", one["phase"]), ("settings", one["setting"]), ("levels", one["level"])):
            if value is not None and value not in view[key]:
                view[key].append(value)
    for view in views.values():
        view["levels"].sort(key=float)
        first = preferred([float(level) / 100 for level in view["levels"]])
        view["level"] = "" if first is None else _level(first)
    return views


def shown_first(found: list[dict[str, Any]], axis: str, phase: str) -> dict[str, Any] | None:
    """The table that stands in the page before its script runs."""
    level = views_of(found).get(axis, {}).get("level")
    return next((one for one in found if (one["axis"], one["phase"], one["level"]) == (axis, phase, level)), None)


def _level(level: float) -> str:
    return f"{100 * level:.4g}"


def _line(line: Line, settings: list[str]) -> dict[str, Any]:
    low, high = line.interval or (None, None)
    rank = line.rank
    return {
        "label": line.label,
        "control": line.control,
        "at": _level(line.level),
        "rank": "" if rank is None else str(rank[0]) if rank[0] == rank[1] else f"{rank[0]}–{rank[1]}",
        "overall": [_share(line.overall), _share(low), _share(high)],
        "lost": _lost(line),
        "times": _times(line, settings),
        "cells": [None if row is None else _cell(row) for row in line.rows],
    }


def _times(line: Line, settings: list[str]) -> list[str]:
    """Saved time as the cell has it, from the least to the most of all settings, and in each of them. In whole %: times
    of two runs differ by more than a tenth.
    """
    found = {name: round(100 * saved) for name, saved in (line.times or {}).items()}
    if not found:
        return [NONE, ""]
    least, most = min(found.values()), max(found.values())
    each = (f"{name}: {found[name]} %" if name in found else f"{name}: not measured" for name in settings)
    return [str(least) if least == most else f"{least} to {most}", "; ".join(each)]


def _unmeasured(standing: Standing, settings: list[str]) -> str:
    """Which columns the table has not, and how to get them; a column of dashes would only take room."""
    missing = [] if any(line.asked for line in standing.lines) else [
        "the loss with the decisions of other tokens (adaptive-bench run --shuffled)"]  # fmt: skip
    if not settings and standing.axis != "time":
        missing.append("saved time (adaptive-bench run --time)")
    return f"Not measured at this level: {'; '.join(missing)}." if missing else ""


def _lost(line: Line) -> str:
    """Points of the dense score lost with the decisions of other tokens, and on how many tasks that is certain."""
    if not line.asked:
        return NONE
    certain = f"{line.loses} of {line.asked}"
    return certain if line.lost is None else f"{100 * line.lost:+.1f} ({certain})".replace("-0.0", "+0.0")


def _cell(row: Row) -> list[str]:
    low, high = row.interval or (None, None)
    return [
        number(row.metric, row.reached()),
        NONE if low is None else number(row.metric, low),
        NONE if high is None else number(row.metric, high),
        *(_share(value) for value in (row.kept, row.kept_low, row.kept_high)),
        "".join(mark for mark, _ in marks_of(row)),
    ]


def _share(value: float | None) -> str:
    return NONE if value is None else percent(value)
