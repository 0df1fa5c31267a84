"""Writes a board as files, all from the same rows: the page, a page for each method, Markdown and Parquet.

Pages are HTML files without scripts or network requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from markupsafe import Markup

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store import atomic
from adaptive_bench.store.runs import as_parquet

from ..boards import RULE as FEATURED
from ..boards import Board, Group, groups_of, read_board
from ..entry import REPRODUCED
from ..list_text import COLUMNS, by_task, first_lines, level_text, long, notes_of, sentences, short
from ..markdown import written
from ..provenance import headroom, measured_earlier, runs_of
from ..publish import BOARD
from ..standing import Standing, preferred, standings
from ..svg import chart
from .method_pages import Links, method_pages, page_of, source, template_of

ROWS = "rows"  # folder beside the page with the same rows as data files
SCHEMA = 3
INDEX = "board.json"  # lists the data files; a folder that has it is a board's
_MOST_NAMED = 20  # refusals that an error names


def build(tables: Sequence[Path], out: Path, *, strict: bool = False, manual: str = "") -> list[str]:
    """Write a site.

    Args:
        tables: `table.json` files of runs. What is wrong in them is left out of the board and reported.
        out: The folder to write to.
        strict: Raise an error if something was refused, after the rest of the board is written.
        manual: Address of the documentation, absolute or relative to the page; without it the page has no link to it.

    Returns:
        Messages for the user, one sentence each.

    Raises:
        UsageError: The folder holds something other than a board.
        EnvironmentProblem: A strict build refused something.
    """
    _check_place(out)
    board = read_board(tables)
    for name, content in downloads(board).items():
        atomic.write_bytes(out / name, content)
    for name, text in files_of(board, Links(manual)).items():
        atomic.write_text(out / name, text)
    atomic.write_text(out / "board.md", written(board))
    # Last, so that the rest of the board can be looked at.
    if strict and board.refused:
        raise EnvironmentProblem(
            f"A strict build takes every entry and row, but {len(board.refused)} of them are refused: "
            f"{' '.join(board.refused[:_MOST_NAMED])} Correct or remove them; the board of the rest is {str(out)!r}."
        )
    return list(board.problems)


def _check_place(folder: Path) -> None:
    """Refuse a folder in which a board would lie among foreign files; hidden ones of desktops do not count."""
    # A board is in the folder itself, or in the folder `board` of a site of documentation.
    if any((folder / inner / INDEX).is_file() for inner in ("", BOARD)):
        return
    inside = folder.iterdir() if folder.is_dir() else [folder] if folder.exists() else []
    if foreign := sorted(one.name for one in inside if not one.name.startswith(".")):
        raise UsageError(
            f"-o is a new or empty folder, or one with an earlier board, but {str(folder)!r} holds something else: "
            f"{', '.join(foreign[:3])}. Name another folder."
        )


def downloads(board: Board) -> dict[str, bytes]:
    """Data files by name: the rows of each model and recipe, and `INDEX`, which lists them and what was left out."""
    found: dict[str, bytes] = {}
    listed = []
    for group in groups_of(board):
        name = f"{ROWS}/{group.key}"
        found[f"{name}.parquet"] = as_parquet(group.board.lines)
        listed.append({"name": name, "model": group.name, "rows": len(group.board.rows)})
    index = {"schema": SCHEMA, "endings": [".parquet"], "files": listed, "problems": board.problems}
    # The index comes first, so that the next build recognises the folder of a build that was stopped.
    return {INDEX: (json.dumps(index, indent=1) + "\n").encode()} | found


@dataclass(frozen=True)
class Part:
    """A group of the board with its lists; the list that is shown first comes first."""

    group: Group
    standings: list[Standing]
    runs: list[dict[str, Any]]

    @classmethod
    def of(cls, group: Group) -> Self:
        """Make the lists of a group."""
        found = standings(group.board)
        first = preferred(found)
        ordered = sorted(found, key=lambda one: one is not first)
        return cls(group, ordered, runs_of(group.board.folders, group.board.entries))


def files_of(board: Board, links: Links | None = None) -> dict[str, str]:
    """The HTML of the page by file name: `index.html`, and a page for each method.

    Args:
        board: The board to show.
        links: Addresses of repository and documentation.
    """
    links = links or Links()
    parts = list(map(Part.of, groups_of(board)))
    style = source("board.css")
    page = template_of(source("board.html")).render(
        style=Markup(style),
        # The page's security policy allows this one style, and no script.
        style_sha256=digest(style),
        parts=[_shown(part) for part in parts],
        featured=FEATURED,
        columns=COLUMNS,
        problems=board.problems,
        failures=[text for part in parts for run in part.runs for text in run["failures"]],
        links=links,
        rows_folder=ROWS,
        version=version("adaptive-bench"),
    )
    return {"index.html": page} | method_pages(board, parts, links)


def _shown(part: Part) -> dict[str, Any]:
    """The values that the template shows of a group."""
    group = part.group
    levels = []
    for standing in part.standings:
        lines = first_lines(standing)
        header, body = short(standing, lines) if lines else by_task(standing)
        # Without a scale no line has a score; then all of them are shown by task.
        lines = lines or list(standing.lines)
        names = [page_of(line.label) for line in lines]
        levels.append(
            {
                "title": level_text(standing),
                "said": sentences(standing),
                "header": header,
                "lines": list(zip(body, names, [line.is_reference for line in lines], strict=True)),
                "long": long(standing),
                "more": max(0, sum(line.score is not None for line in standing.lines) - len(lines)),
                "notes": notes_of(standing),
            }
        )
    return {
        "key": group.key,
        "name": group.name,
        "featured": group.featured,
        "meta": _meta(part),
        "levels": levels,
        # By level, for lines that go from left to right: `standings` begins with the one that is shown first. At a
        # single level there is no line to draw.
        "chart": Markup(chart(sorted(part.standings, key=lambda one: one.level))) if len(levels) > 1 else "",
        "runs": part.runs,
        "earlier": measured_earlier(group.board.folders),
        "headroom": [text for _, text in headroom(group.board.folders, {row.task for row in group.board.rows})],
    }


def _meta(part: Part) -> str:
    rows, runs = part.group.board.rows, part.runs
    seeds = [row.seeds for row in rows if row.score is not None]
    finished = sorted(run["facts"]["finished"] for run in runs if "finished" in run["facts"])
    parts = [] if part.group.featured else ["sandbox"]
    parts += [f"{len({row.label for row in rows})} rows", f"{len({row.task for row in rows})} tasks"]
    if seeds:
        span = str(max(seeds)) if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}"
        parts.append(f"{span} seed{'' if span == '1' else 's'}")
    if finished:
        parts.append(f"last run {finished[-1][:10]}")
    states = [run["facts"]["status"] for run in runs if "status" in run["facts"]]
    if len(states) > 1:
        parts.append(f"{states.count(REPRODUCED)} of {len(states)} entries reproduced")
    return " · ".join([*parts, *(states if len(states) == 1 else ())])


def embedded(data: Mapping[str, Any]) -> Markup:
    """JSON for a script element that no text inside can close: characters of markup are written as JSON escapes."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # `</script>` and `<!--` end or change a script; U+2028 and U+2029 end a line in older JavaScript.
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def digest(text: str) -> str:
    """The SHA-256 digest by which a page's security policy allows a style or script."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
