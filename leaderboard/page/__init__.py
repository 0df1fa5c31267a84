"""The page: an HTML file with its style and script inside, and its data beside it or inside as well."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from .. import dials
from ..entry import REPRODUCED, STATES
from ..frame import Board
from ..grid import AXES, COSTS
from ..groups import RULE as FEATURED
from ..groups import Group, groups_of, view_name
from ..links import Links, bibtex, links_of
from ..marks import ALL_MARKS
from ..paper import beside_board, paper_tables
from ..provenance import fitting, method_facts_of, runs_of
from ..row import Row
from ..rows import first_metrics, spec_of
from ..samples import samples_of
from ..standing import RULE as OVERALL
from ..tables import CELL, FACTS, NONE, SAVED, VALUES, methods_of, packed, tables_of
from ..verdict import verdict
from .methods import method_pages, page_of
from .ranked import ranked, shown_first, views_of

POOLED = ("claimed", "projected", "bytes", "time")  # axes without phases
MOST_ROWS = 50  # of one table, unless a reader asks for all
FOLDER = "data"  # beside the page
ROWS = "rows"  # beside the page: the same rows for other programs
MORE = "-metrics"  # ends the name of what is read when another metric than a task's first is chosen
_SCRIPTS = ("elements.js", "chart.js", "state.js", "ranked.js", "board.js", "drawer.js")


@dataclass(frozen=True)
class _Part:
    """A group of the board, ready for the page."""

    group: Group
    tables: list[dict[str, Any]]
    ranked: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    methods: list[dict[str, Any]]


def render(board: Board, axis: str, phase: str = "all", figures: Sequence[str] = ()) -> str:
    """The page in one file, see `files_of`."""
    return files_of(board, axis, phase, figures, one_file=True)["index.html"]


def files_of(
    board: Board,
    axis: str,
    phase: str = "all",
    figures: Sequence[str] = (),
    *,
    one_file: bool = False,
    links: Links | None = None,
) -> dict[str, str]:
    """The page by names of files: `index.html`, and beside it the data of every model and axis as a script that a
    `<script>` element loads, from a disk as well, where a page may fetch nothing.

    Args:
        axis, phase: What is shown first.
        figures: Names of the files in `figures/` to link to.
        one_file: All data in `index.html`, and no page for each method.
        links: Where the page leads to.
    """
    links = links or links_of()
    parts = [_part(group, pages=not one_file) for group in groups_of(board)]
    data: dict[str, Any] = {}
    for part in parts:
        key = part.group.key
        for one in part.tables:
            # A task has up to seven metrics: all but its first lie in a file of their own.
            name = view_name(key, one["axis"], one["phase"]) + ("" if one["headline"] else MORE)
            data.setdefault(name, {"tables": [], "ranked": []})["tables"].append(_packed(one))
        for one in part.ranked:
            name = view_name(key, one["axis"], one["phase"])
            data.setdefault(name, {"tables": [], "ranked": []})["ranked"].append(one)
        data[f"{key}-runs"] = {
            "runs": fitting(part.runs),
            "samples": samples_of(part.group.board.folders, board.entries),
        }
    first = next((part for part in parts if any(one["axis"] == axis for one in part.tables)), None)
    shown = set() if first is None else {view_name(first.group.key, axis, phase)} & set(data)
    inside = set(data) if one_file else shown
    there = {name: data[name] for name in inside}
    page = _page(board, parts, first, axis, phase, figures, there, len(data), links)
    beside = {f"{FOLDER}/{name}.js": f"arrived({_json(name)}, {_json(data[name])});\n" for name in data.keys() - inside}
    pages = {} if one_file else method_pages(board, parts, axis, phase, links)
    return {"index.html": page, **dict(sorted(beside.items())), **pages}


def _part(group: Group, *, pages: bool) -> _Part:
    board = group.board
    methods = methods_of(board.rows, method_facts_of(board.folders))
    states = _states(board, [one["spec"] for one in methods])
    methods = [one | {"state": states[one["spec"]], "page": page_of(one["label"]) if pages else ""} for one in methods]
    return _Part(
        group,
        tables_of(_shown(board.rows)),
        ranked(group),
        runs_of(board.folders, board.entries),
        methods,
    )


def _page(
    board: Board,
    parts: Sequence[_Part],
    first: _Part | None,
    axis: str,
    phase: str,
    figures: Sequence[str],
    inside: Mapping[str, Any],
    data_files: int,
    links: Links,
) -> str:
    runs = [run for part in parts for run in part.runs]
    tables = [] if first is None else first.tables
    methods = [] if first is None else first.methods
    data = {
        "none": NONE,
        "most_rows": MOST_ROWS,
        "folder": FOLDER,
        "more": MORE,
        "rows_folder": ROWS,
        "axis": axis,
        "phase": phase,
        "axes": AXES,
        "values": VALUES,
        "saved": [*SAVED, *COSTS],
        "pooled": POOLED,
        "facts": FACTS,
        "columns": CELL,
        "looks": list(dict.fromkeys(one["label"] for part in parts for one in part.methods if not one["control"])),
        "boards": [_about(part, axis, phase) for part in parts],
        "board": "" if first is None else first.group.key,
        "parts": inside,
    }
    style, script = source("board.css"), "\n".join(source(name) for name in _SCRIPTS)
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(source("board.html"))
    return template.render(
        style=Markup(style),
        script=Markup(script),
        beside=len(inside) < data_files,
        style_sha256=digest(style),
        script_sha256=digest(script),
        first=None if first is None else _about(first, axis, phase),
        standing=None if first is None else shown_first(first.ranked, axis, phase),
        nothing=verdict(board, axis, phase),
        overall=OVERALL,
        featured=FEATURED,
        failures=[text for run in runs for text in run["failures"]],
        problems=board.problems,
        tables=[one for one in tables if one["headline"] and (one["axis"], one["phase"]) == (axis, phase)],
        missing=NONE,
        most_rows=MOST_ROWS,
        batched={one["label"] for one in methods if one["causality"] == "C2"},
        stale={one["label"] for one in methods if one["stale"]},
        states={one["label"]: one["state"][0] for one in methods},
        pages={one["label"]: one["page"] for one in methods},
        links=links,
        bibtex=bibtex(),
        marks=ALL_MARKS,
        dials=dials.sections(board),
        dials_note=dials.NOTE,
        several=len(board.folders) > 1,
        paper=[one for table in paper_tables() for one in beside_board(board, table["table"])],
        figures=figures,
        rows_folder=ROWS,
        first_view="" if first is None else view_name(first.group.key, axis, phase),
        version=version("adaptive-bench"),
        data=embedded(data),
    )


def _about(part: _Part, axis: str, phase: str) -> dict[str, Any]:
    """What the page knows of a group before its numbers are there."""
    board = part.group.board
    there = {(row.axis, row.phase) for row in board.rows}
    first = (axis, phase) if (axis, phase) in there else (board.rows[0].axis, board.rows[0].phase)
    return {
        "key": part.group.key,
        "name": part.group.name,
        "featured": part.group.featured,
        "meta": _meta(part),
        "verdict": verdict(board, *first),
        "axis": first[0],
        "phase": first[1],
        "views": {name: {"phases": [], "settings": [], "levels": [], "level": ""} for name in dict.fromkeys(
            table["axis"] for table in part.tables)} | views_of(part.ranked),
        "metrics": list(dict.fromkeys(table["metric"] for table in part.tables)),
        "tasks": list(dict.fromkeys(table["task"] for table in part.tables)),
        "methods": part.methods,
    }  # fmt: skip


def _packed(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table with its cells as lists: their keys, in each of them, would be most of the page."""
    rows = [
        {**row, "cells": [None if cell is None else packed(cell) for cell in row["cells"]]} for row in table["rows"]
    ]
    return {**table, "rows": rows}


def _shown(rows: Sequence[Row]) -> list[Row]:
    """What fits into a page: a task's first metric everywhere, the others pooled over the phases."""
    first = first_metrics(rows)
    return [row for row in rows if row.phase == "all" or row.metric == first[row.task]]


def embedded(data: Mapping[str, Any]) -> Markup:
    """JSON that no text in it can end: what HTML might read as markup is written as an escape of JSON."""
    return Markup(_json(data))


def _json(data: object) -> str:
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _states(board: Board, specs: Sequence[str]) -> dict[str, tuple[str, str]]:
    """By spec what stands behind its rows, of several entries the weakest: in a word, and as its entries say it."""
    found = {}
    here = {(row.conditions.backbone, row.conditions.recipe) for row in board.rows}
    for spec in specs:
        told = [
            one
            for one in board.entries.values()
            if any(spec_of(row) == spec and (row.get("backbone"), row.get("recipe")) in here for row in one.rows)
        ]
        states = [row.evidence for row in board.rows if row.spec == spec and row.evidence is not None]
        said = "; ".join(dict.fromkeys(one.said() for one in told)) or "a run, not an entry"
        found[spec] = (min(states, key=STATES.index, default=NONE), said)
    return found


def _meta(part: _Part) -> str:
    rows, runs = part.group.board.rows, part.runs
    seeds = [row.seeds for row in rows if row.score is not None]
    finished = sorted(run["facts"]["finished"] for run in runs if "finished" in run["facts"])
    parts = [] if part.group.featured else ["sandbox"]
    parts += [f"{len(part.methods)} methods", f"{len({row.task for row in rows})} tasks"]
    if seeds:
        span = str(max(seeds)) if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}"
        parts.append(f"{span} seed{'' if span == '1' else 's'}")
    parts += [f"model {name}" for name in sorted({row.conditions.model for row in rows if row.conditions.model})]
    if finished:
        parts.append(f"last run {finished[-1][:10]}")
    states = [run["facts"]["status"] for run in runs if "status" in run["facts"]]
    if len(states) > 1:
        parts.append(f"{states.count(REPRODUCED)} of {len(states)} entries reproduced")
    return " · ".join([*parts, *(states if len(states) == 1 else ())])


def source(name: str) -> str:
    """Text of a file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """What a page's security policy knows a style or script by."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
