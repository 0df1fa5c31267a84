"""Figures for papers: quality against saved compute, one per task, as SVG and PDF. They need matplotlib."""

from __future__ import annotations

import importlib
import importlib.util
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.metric import metric_of
from adaptive_bench.store import atomic

from .grid import AXES, Grid, grids
from .numbers import number
from .row import Row
from .rows import first_metrics
from .tables import FAMILY_OF_CONTROLS

_COLOURS = ("#0b62b0", "#b84a00", "#00765a", "#9c2a78", "#6b5300", "#5b3fb8", "#b01e3c", "#0d6e80")
_MOST_CURVES = 24
_MARKERS = "os^Dv*"


def write_figures(rows: Sequence[Row], folder: Path, axis: str, phase: str = "all") -> list[str]:
    """Write `<task>.svg` and `<task>.pdf` for the first metric of each task, with a number where rows of a task are not
    comparable; names of what was written.

    Raises:
        EnvironmentProblem: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise EnvironmentProblem(
            "Figures are drawn by matplotlib, which is not installed. Give pip install 'adaptive-bench[figures]', or "
            "leave out --figures."
        )
    first = first_metrics(rows)
    chosen = [row for row in rows if row.axis == axis and row.phase == phase]
    written = []
    times: Counter[str] = Counter()
    for grid in grids(row for row in chosen if first[row.task] == row.metric):
        if grid.setting is None and any(row.score is not None for row in grid.cells.values()):
            times[grid.task] += 1
            number_of_task = times[grid.task]
            written += _write(grid, folder, grid.task + (f"-{number_of_task}" if number_of_task > 1 else ""))
    return written


def _write(grid: Grid, folder: Path, name: str) -> list[str]:
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    # The same rows give the same bytes: no dates, and identifiers that are not random. Text stays text.
    settings = {"svg.hashsalt": "adaptive-bench", "svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 9}
    stem = re.sub(r"[^\w.-]", "_", name)  # of a text: `perplexity:owner/name`
    names = [f"{stem}.svg", f"{stem}.pdf"]
    with matplotlib.rc_context(settings):
        figure = _draw(grid)
        for name, metadata in zip(names, ({"Date": None}, {"CreationDate": None}), strict=True):
            drawn = io.BytesIO()
            figure.savefig(drawn, format=name.rpartition(".")[2], metadata=metadata, bbox_inches="tight")
            atomic.write_bytes(folder / name, drawn.getvalue())
    return names


def _draw(grid: Grid) -> Any:
    figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(5.2, 3.2))
    axes = figure.add_subplot()
    colours = iter(range(len(grid.methods)))
    for method in _readable(grid):
        reached = [row for (name, _), row in grid.cells.items() if name == method and row.score is not None]
        if not reached:
            continue
        levels = [100 * row.level for row in reached]
        scores = _shown(grid, [row.score for row in reached])
        lows, highs = (_shown(grid, ends) for ends in zip(*((row.low, row.high) for row in reached), strict=True))
        if method in ("dense", "base"):
            axes.axhline(scores[0], color="0.2", linestyle="-" if method == "dense" else ":", linewidth=1, label=method)
            continue
        if method == "random_skip":
            axes.fill_between(levels, scores, _worst(grid), color="0.88", label="no skill (random)")
        place = next(colours)
        below = [_length(score - low) for score, low in zip(scores, lows, strict=True)]
        above = [_length(high - score) for score, high in zip(scores, highs, strict=True)]
        look = {"color": _COLOURS[place % len(_COLOURS)], "marker": _MARKERS[place % len(_MARKERS)]}
        axes.errorbar(
            levels, scores, (below, above), **look, markersize=4, linewidth=1.2, capsize=2, label=_plain(method)
        )
    axes.set_xlabel(f"{AXES[grid.axis]} (%)")
    axes.set_ylabel(_plain(grid.compared))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _readable(grid: Grid) -> list[str]:
    """All methods, or where there are too many to tell apart the controls and those with the best mean score."""
    if len(grid.methods) <= _MOST_CURVES:
        return grid.methods
    sign = 1.0 if metric_of(grid.metric).better == "lower" else -1.0
    found: dict[str, list[float]] = {}
    for (name, _), row in grid.cells.items():
        if row.score is not None:
            found.setdefault(name, []).append(sign * row.score)
    chosen = sorted(found, key=lambda name: (name not in FAMILY_OF_CONTROLS, fmean(found[name])))[:_MOST_CURVES]
    return [name for name in grid.methods if name in chosen]


def _worst(grid: Grid) -> float:
    """The worst score in a grid, where the shaded region ends."""
    scores = _shown(grid, [row.score for row in grid.cells.values() if row.score is not None])
    return max(scores) if metric_of(grid.metric).better == "lower" else min(0.0, *scores)


def _length(difference: float) -> float:
    """Length of an interval's arm; nothing where there is none, or where it points the wrong way."""
    return max(difference, 0.0) if math.isfinite(difference) else 0.0


def _shown(grid: Grid, values: Iterable[float | None]) -> list[float]:
    """Scores in the unit they are shown in."""
    return [math.nan if value is None else float(number(grid.metric, value)) for value in values]


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # matplotlib reads formulas between dollars
