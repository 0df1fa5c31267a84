"""Writes a board's page: one HTML file without scripts or network requests, and one such file for each method."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from markupsafe import Markup

from ..entry import REPRODUCED
from ..frame import Board
from ..groups import RULE as FEATURED
from ..groups import Group, groups_of
from ..headline import headline, is_real
from ..paper import beside, paper_tables
from ..provenance import headroom, measured_earlier, runs_of
from ..standing import Standing, preferred, standings
from ..svg import chart
from ..table_cells import COLUMNS, by_task, first_lines, level_text, long, notes_of, short
from .method_pages import Links, method_pages, page_of, source, template_of

ROWS = "rows"  # folder beside the page with the same rows as data files
# The citation of `CITATION.cff`, with braces doubled for `format`. Double braces in the result keep BibTeX from taking
# the last word for a surname.
BIBTEX = """@software{{adaptive_bench,
  author  = {{{{adaptive-bench authors}}}},
  title   = {{adaptive-bench: benchmark suite for adaptive compute in language models}},
  version = {{{version}}},
  year    = {{2026}},
  license = {{MIT}}
}}"""


@dataclass(frozen=True)
class Part:
    """A group of the board with its lists; the list that is shown first comes first."""

    group: Group
    standings: list[Standing]
    runs: list[dict[str, Any]]


def files_of(board: Board, links: Links | None = None) -> dict[str, str]:
    """The HTML of the page by file name: `index.html`, and a page for each method.

    Args:
        board: The board to show.
        links: Addresses of repository and documentation.
    """
    links = links or Links()
    parts = [_part(group, board) for group in groups_of(board)]
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
        bibtex=BIBTEX.format(version=version("adaptive-bench")),
        paper=[one for table in paper_tables() for one in beside(board, table["table"]) if _is_measured(one)],
        rows_folder=ROWS,
        version=version("adaptive-bench"),
    )
    return {"index.html": page} | method_pages(board, parts, links)


def _part(group: Group, board: Board) -> Part:
    found = standings(group.board)
    first = preferred(found)
    ordered = [] if first is None else [first, *(one for one in found if one is not first)]
    return Part(group, ordered, runs_of(group.board.folders, board.entries))


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
                "said": [text for text in (headline(standing), is_real(standing)) if text],
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
        # By level, for lines that go from left to right: `standings` begins with the one that is shown first.
        "chart": Markup(chart(sorted(part.standings, key=lambda one: one.level))),
        "runs": part.runs,
        "earlier": measured_earlier(group.board.folders),
        "headroom": [text for _, text in headroom(group.board.folders, {row.task for row in group.board.rows})],
    }


def _is_measured(table: Mapping[str, Any]) -> bool:
    return any(row["label"] for row in table["rows"])


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
