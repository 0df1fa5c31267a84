"""A board as files: the page, Markdown, CSV, JSON, Parquet and figures, all from one data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from adaptive_bench import atomic
from adaptive_bench.errors import UsageError

from .figures import installed, write_figures
from .frame import Board, read_board
from .grid import label
from .markdown import render as render_markdown
from .page import render as render_page
from .plain import cell, markdown
from .provenance import matched_on
from .rows import Row
from .verdict import verdict

SCHEMA = 1
LARGEST_PAGE_BYTES = 1_572_864
_TEXTS = (
    "label",
    "method",
    "semantics",
    "task",
    "metric",
    "axis",
    "phase",
    "timing",
    "projected_shape",
    "status",
    "model",
    "recipe",
)


def build(tables: Sequence[Path], out: Path, axis: str | None = None, phase: str | None = None) -> list[str]:
    """Write a site.

    Args:
        tables: `table.json` of runs. What is wrong in them is left out of the board, and said.
        out: The folder to write to.
        axis, phase: What the page shows first; by default what the runs were matched on.

    Returns:
        What the user should know, one sentence each.
    """
    board = read_board(tables)
    axis, phase = first_view(board, axis, phase)
    said = list(board.problems)
    figures: list[str] = []
    if installed():
        figures = write_figures(board.rows, out / "figures", axis, phase)
    else:
        said.append("No figures: they need matplotlib (pip install 'adaptive-bench[figures]').")
    page = render_page(board, axis, phase, figures)
    if len(page.encode()) > LARGEST_PAGE_BYTES:
        said.append(
            f"The page has {len(page.encode()) / 2**20:.1f} MiB, more than the {LARGEST_PAGE_BYTES / 2**20:.1f} that "
            f"open at once everywhere. Build a board of fewer runs."
        )
    atomic.write_text(out / "index.html", page)
    atomic.write_text(out / "board.md", as_markdown(board, axis, phase))
    atomic.write_text(out / "board.csv", as_csv(board))
    atomic.write_json(out / "board.json", as_json(board))
    atomic.write_bytes(out / "board.parquet", board.frame.to_parquet(index=False))
    return said


def first_view(board: Board, axis: str | None = None, phase: str | None = None) -> tuple[str, str]:
    """Axis and phase to begin with: what was asked for, else what all runs were matched on, else net, pooled.

    Raises:
        UsageError: Something was asked for that no row has.
    """
    there = list(dict.fromkeys((row["axis"], row["phase"]) for row in board.rows))
    asked = [place for place in there if axis in (None, place[0]) and phase in (None, place[1])]
    if not asked and there:
        known = ", ".join(one if where == "all" else f"{one} of {where}" for one, where in there)
        raise UsageError(
            f"A board shows what its runs have, but none has {axis or 'an axis'} of {phase}. There is {known}."
        )
    preferred = [(axis or "net", phase or "all"), ("net", "all")]
    matched = {matched_on(folder) for folder in board.folders}
    if axis is None and phase is None and len(matched) == 1:
        preferred.insert(0, matched.pop())
    return next((place for place in preferred if place in asked), asked[0] if asked else ("net", "all"))


def as_csv(board: Board) -> str:
    """The frame as CSV; no text in it starts a formula."""
    frame = board.frame
    for column in frame.columns.intersection(list(_TEXTS)):
        frame[column] = frame[column].map({text: cell(text) for text in frame[column].dropna().unique()})
    return str(frame.to_csv(index=False, lineterminator="\n"))


def as_json(board: Board) -> Mapping[str, object]:
    """The frame as JSON, with the problems beside the rows."""
    rows: list[Row] = [{"label": label(row), **row} for row in board.rows]
    return {"schema": SCHEMA, "rows": rows, "problems": list(board.problems)}


def as_markdown(board: Board, axis: str, phase: str = "all") -> str:
    """The verdict and the tables of one axis and phase."""
    rows = [row for row in board.rows if row["axis"] == axis and row.get("phase", "all") == phase]
    title, _, rest = render_markdown(rows).partition("\n")
    problems = [f"- {markdown(text)}" for text in board.problems]
    left_out = ["\n## Left out\n", *problems, ""] if problems else []
    return "\n".join([title, "", markdown(verdict(board, axis, phase)), rest, *left_out])
