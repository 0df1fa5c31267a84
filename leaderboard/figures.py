"""Draws figures for papers with matplotlib: score against measured saving for every model, as SVG and PDF."""

from __future__ import annotations

import importlib
import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store import atomic

from .frame import Board
from .groups import groups_of
from .headline import AXES
from .standing import Standing, standings
from .svg import series

_MARKERS = "os^Dv*"


def write_figures(board: Board, folder: Path) -> list[str]:
    """Write `<model>.svg` and `<model>.pdf` for every model, and return the names of the files.

    Raises:
        EnvironmentProblem: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise EnvironmentProblem(
            "Figures are drawn by matplotlib, which is not installed. Run pip install 'adaptive-bench[figures]', or "
            "leave out --figures."
        )
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    # A fixed hash salt and no dates give the same bytes for the same rows; the font settings keep text as text.
    settings = {"svg.hashsalt": "adaptive-bench", "svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 9}
    written = []
    with matplotlib.rc_context(settings):
        for group in groups_of(board):
            if not (found := standings(group.board)):
                continue
            figure = _draw(found)
            for ending, metadata in (("svg", {"Date": None}), ("pdf", {"CreationDate": None})):
                drawn = io.BytesIO()
                figure.savefig(drawn, format=ending, metadata=metadata, bbox_inches="tight")
                written.append(f"{group.key}.{ending}")
                atomic.write_bytes(folder / written[-1], drawn.getvalue())
    return written


def _draw(found: Sequence[Standing]) -> Any:
    figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(5.2, 3.2))
    axes = figure.add_subplot()
    for place, (label, lines) in enumerate(series(found).items()):
        scores = [100 * (line.score or 0.0) for line in lines]
        shown = label.replace("$", r"\$")  # matplotlib reads formulas between dollars
        if lines[0].is_reference:
            axes.axhline(scores[0], color="0.4", linestyle="-" if label == "dense" else ":", linewidth=1, label=shown)
            continue
        ends = [line.interval or (line.score or 0.0, line.score or 0.0) for line in lines]
        arms = (
            [max(score - 100 * low, 0.0) for score, (low, _) in zip(scores, ends, strict=True)],
            [max(100 * high - score, 0.0) for score, (_, high) in zip(scores, ends, strict=True)],
        )
        look = {"marker": _MARKERS[place % len(_MARKERS)], "markersize": 4, "linewidth": 1.2, "capsize": 2}
        style = "-" if lines[0].chooses == "per token" else "--"
        axes.errorbar([100 * (line.saved or 0.0) for line in lines], scores, arms, label=shown, linestyle=style, **look)
    axes.set_xlabel(f"measured saving, % {AXES.get(found[0].axis, found[0].axis)}")
    axes.set_ylabel("score (base 0, dense 100)")
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
