"""A board as files: the page, Markdown, CSV, JSON, Parquet and figures, all from the same rows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store import atomic, formats

from . import dials
from .answer import answer
from .figures import write_figures
from .frame import Board, read_board
from .grid import AXES, as_table
from .groups import Group, groups_of, view_name
from .links import links_of
from .markdown import written
from .numbers import percent
from .page import ROWS, files_of
from .place import INDEX, check_place
from .plain import cell, markdown
from .provenance import matched_on
from .row import Row
from .standing import Standing, plain_ms, preferred, standings
from .tables import NONE
from .verdict import LONGEST, verdict

SCHEMA = 2
DIALS = "dials.csv.gz"
_MOST_NAMED = 20  # of what was refused, in an error
LARGEST_PAGE_BYTES = 1_572_864


def build(
    tables: Sequence[Path],
    out: Path,
    axis: str | None = None,
    phase: str | None = None,
    *,
    figures: bool = False,
    strict: bool = False,
    one_file: bool = False,
    manual: str = "",
) -> list[str]:
    """Write a site.

    Args:
        tables: `table.json` of runs. What is wrong in them is left out of the board, and said.
        out: The folder to write to.
        axis, phase: What the page shows first; by default what the runs were matched on.
        figures: Also draw figures, which takes longer than all the rest.
        strict: Fail where something was refused, after the rest of the board is written.
        one_file: Put all data into `index.html`, to be passed on, instead of files beside it that are read when needed.

        manual: Address of the documentation, absolute or as seen from the page; without it there is no link to it.

    Returns:
        What the user should know, one sentence each.

    Raises:
        UsageError: Nothing has the axis or phase, an address is none, or the folder holds something else than a board.
        EnvironmentProblem: Figures are wanted, and matplotlib is not installed; or a strict build refused something.
    """
    check_place(out, "-o")
    links = links_of(manual)
    board = read_board(tables)
    axis, phase = first_view(board, axis, phase)
    said = list(board.problems)
    for name, content in downloads(board).items():
        atomic.write_bytes(out / name, content)
    drawn = write_figures(board.rows, out / "figures", axis, phase) if figures else []
    pages = files_of(board, axis, phase, drawn, one_file=one_file, links=links)
    for name, text in pages.items():
        if (size := len(text.encode())) > LARGEST_PAGE_BYTES:
            said.append(
                f"{name} has {size / 2**20:.1f} MiB, more than the {LARGEST_PAGE_BYTES / 2**20:.1f} that open at once "
                f"everywhere. {'Leave out --one-file, or build' if one_file else 'Build'} a board of fewer runs."
            )
        atomic.write_text(out / name, text)
    atomic.write_text(out / "board.md", as_markdown(board, axis, phase))
    if lines := dials.as_lines(board):
        atomic.write_bytes(out / DIALS, _compressed(_csv(lines)))
    if strict and board.refused:
        raise EnvironmentProblem(
            f"A strict build takes every entry and row, but {len(board.refused)} of them are refused: "
            f"{' '.join(board.refused[:_MOST_NAMED])} Correct or remove them; the board of the rest is {str(out)!r}."
        )
    return said


def first_view(board: Board, axis: str | None = None, phase: str | None = None) -> tuple[str, str]:
    """Axis and phase to begin with: what was asked for, else what all runs were matched on, else net, pooled.

    Raises:
        UsageError: Something was asked for that no row has.
    """
    there = list(dict.fromkeys((row.axis, row.phase) for row in board.rows))
    asked = [place for place in there if axis in (None, place[0]) and phase in (None, place[1])]
    if not asked and there:
        known = ", ".join(one if where == "all" else f"{one} of {where}" for one, where in there)
        raise UsageError(
            f"A board shows what its runs have, but none has {axis or 'an axis'}"
            f"{f' of {phase}' if phase else ''}. There is {known}."
        )
    preferred = [(axis or "net", phase or "all"), ("net", "all")]
    matched = {matched_on(folder) for folder in board.folders}
    if axis is None and phase is None and len(matched) == 1:
        preferred.insert(0, matched.pop())
    return next((place for place in preferred if place in asked), asked[0] if asked else ("net", "all"))


def as_csv(board: Board) -> str:
    """The rows as CSV; no text in it starts a formula."""
    return _csv(board.lines)


def _csv(lines: Sequence[Mapping[str, object]]) -> str:
    return formats.as_csv([{key: cell(value) for key, value in line.items()} for line in lines])


def as_json(board: Board) -> str:
    """The rows as JSON, one on a line, with the problems beside the rows."""
    rows = ",\n".join(_json(line) for line in board.lines)
    return f'{{"schema": {SCHEMA}, "rows": [\n{rows}\n], "problems": {_json(board.problems)}}}\n'


def downloads(board: Board) -> dict[str, bytes]:
    """Files by name: the rows of each model, recipe, axis and phase in `ROWS` as CSV, JSON and Parquet, and
    `INDEX`, which lists them with what was left out. A row has a hundred columns, so that one file with those of
    fifty entries would be too large to open; pandas reads the compressed ones as they are.
    """
    found: dict[str, bytes] = {}
    listed = []
    for group in groups_of(board):
        by_view: dict[tuple[str, str], list[Row]] = {}
        for row in group.board.rows:
            by_view.setdefault((row.axis, row.phase), []).append(row)
        for (axis, phase), rows in by_view.items():
            some = replace(group.board, rows=rows)
            name = f"{ROWS}/{view_name(group.key, axis, phase)}"
            found |= {
                f"{name}.csv.gz": _compressed(as_csv(some)),
                f"{name}.json.gz": _compressed(as_json(some)),
                f"{name}.parquet": formats.as_parquet(some.lines),
            }
            listed.append({"name": name, "model": group.name, "axis": axis, "phase": phase, "rows": len(rows)})
    index = {"schema": SCHEMA, "endings": [".csv.gz", ".json.gz", ".parquet"], "files": listed}
    # First, so that a build which was stopped leaves a folder that the next one knows.
    return {INDEX: (json.dumps(index | {"problems": board.problems}, indent=1) + "\n").encode()} | found


def _compressed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)  # without a date the same rows give the same bytes


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def as_markdown(board: Board, axis: str, phase: str = "all") -> str:
    """What is said of each model, the verdict, and the tables of one axis and phase."""
    rows = [row for row in board.rows if row.axis == axis and row.phase == phase]
    title, _, rest = written(rows).partition("\n")
    problems = [f"- {markdown(text, LONGEST)}" for text in board.problems]
    left_out = ["\n## Left out\n", *problems, ""] if problems else []
    shown = list(_shown_first(board, axis, phase))
    said = [
        f"- **{markdown(group.name)}**: {markdown(answer(group.board, one, featured=group.featured).text, LONGEST)}"
        for group, one in shown
    ]
    told = markdown(verdict(board, axis, phase), LONGEST)
    times = [text for group, one in shown for text in _times(group, one)]
    return "\n".join([title, "", *said, "", told, rest, *times, *_dials(board), *left_out])


def _shown_first(board: Board, axis: str, phase: str) -> Iterator[tuple[Group, Standing]]:
    """Of each model and recipe the ranked table that the page shows first."""
    for group in groups_of(board):
        found = [one for one in standings(group.board) if (one.axis, one.phase) == (axis, phase)]
        level = preferred([one.level for one in found])
        yield from ((group, one) for one in found if one.level == level)


def _times(group: Group, standing: Standing) -> list[str]:
    """The time saved where the scores stand, and what a new token takes, in every setting that was timed."""
    lines = []
    for line in standing.lines:
        plain = plain_ms(group.board, line)
        lines += [
            [line.label, setting, percent(saved), f"{plain[setting] * (1 - saved):.3g}" if setting in plain else NONE]
            for setting, saved in (line.times or {}).items()
        ]
    if not lines:
        return []
    title = f"{markdown(group.name)}: saved time at {100 * standing.level:.4g} % {AXES[standing.axis]}"
    return [f"\n## {title}\n", as_table(("method", "setting", "saved time, %", "ms/token"), lines), ""]


def _dials(board: Board) -> list[str]:
    """Which dial value gave which saving, and dials that cannot move a task."""
    parts = []
    for one in dials.sections(board):
        parts.append(f"\n## Dial values: {markdown(one['title'])}\n")
        parts += [f"{dials.NOTE}\n", *(f"- {markdown(text, LONGEST)}" for text in one["said"]), ""]
        parts.append(as_table(one["header"], one["lines"]))
    return [*parts, ""] if parts else []
