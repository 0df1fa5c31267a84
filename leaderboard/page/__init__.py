"""The page: one HTML file with its style, its script and all of its data inside."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..frame import Board
from ..grid import ALL_MARKS, AXES, NOT_CONVERGED
from ..layout import layouts
from ..paper import paper_tables
from ..provenance import fitting, method_facts_of, runs_of, variants_of
from ..row import Row
from ..rows import first_metrics
from ..samples import samples_of
from ..steps import sections
from ..tables import CELL, FACTS, NONE, SAVED, VALUES, methods_of, packed, tables_of
from ..verdict import verdict
from ..verified import UNVERIFIED

POOLED = ("claimed", "projected", "time")  # axes without phases
MOST_ROWS = 50  # of one table, unless a reader asks for all
_SCRIPTS = ("chart.js", "state.js", "board.js", "drawer.js")


def render(board: Board, axis: str, phase: str = "all", figures: Sequence[str] = ()) -> str:
    """The page.

    Args:
        axis, phase: What is shown first.
        figures: Names of the files in `figures/` to link to.
    """
    tables = tables_of(_shown(board.rows))
    runs = runs_of(board.folders)
    methods = methods_of(board.rows, method_facts_of(board.folders))
    data = {
        "none": NONE,
        "most_rows": MOST_ROWS,
        "axis": axis,
        "phase": phase,
        "axes": AXES,
        "values": VALUES,
        "saved": list(SAVED),
        "pooled": POOLED,
        "methods": methods,
        "facts": FACTS,
        "columns": CELL,
        "tables": [table | {"rows": [_packed(row) for row in table["rows"]]} for table in tables],
        "runs": fitting(runs),
        "samples": samples_of(board.folders),
    }
    style, script = _source("board.css"), "\n".join(_source(name) for name in _SCRIPTS)
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_source("board.html"))
    return template.render(
        style=Markup(style),
        script=Markup(script),
        style_sha256=_digest(style),
        script_sha256=_digest(script),
        verdict=verdict(board, axis, phase),
        meta=_meta(board, runs),
        failures=[text for run in runs for text in run["failures"]],
        problems=board.problems,
        tables=[one for one in tables if one["headline"] and (one["axis"], one["phase"]) == (axis, phase)],
        missing=NONE,
        most_rows=MOST_ROWS,
        batched={one["label"] for one in methods if one["causality"] == "C2"},
        stale={one["label"] for one in methods if one["stale"]},
        marks=(*ALL_MARKS, NOT_CONVERGED) if board.steps else ALL_MARKS,
        steps={run: sections(record, board.rows) for run, record in board.steps.items()},
        several=len(board.folders) > 1,
        layouts=layouts(board.rows, variants_of(board.folders)),
        paper=paper_tables(),
        figures=figures,
        version=version("adaptive-bench"),
        data=embedded(data),
    )


def _packed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a table with its cells as lists: their keys, in each of them, would be most of the page."""
    return {**row, "cells": [None if cell is None else packed(cell) for cell in row["cells"]]}


def _shown(rows: Sequence[Row]) -> list[Row]:
    """What fits into a page: a task's first metric everywhere, the others pooled over the phases."""
    first = first_metrics(rows)
    return [row for row in rows if row.phase == "all" or row.metric == first[row.task]]


def embedded(data: Mapping[str, Any]) -> Markup:
    """JSON that no text in it can end: what HTML might read as markup is written as an escape of JSON."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def _meta(board: Board, runs: Sequence[Mapping[str, Any]]) -> str:
    seeds = [row.seeds for row in board.rows if row.score is not None]
    finished = sorted(run["facts"]["finished"] for run in runs if "finished" in run["facts"])
    parts = [f"{len(methods_of(board.rows))} methods", f"{len({row.task for row in board.rows})} tasks"]
    if seeds:
        span = str(max(seeds)) if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}"
        parts.append(f"{span} seed{'' if span == '1' else 's'}")
    models = sorted({run["facts"]["model"] for run in runs if "model" in run["facts"]})
    parts += [f"model {name}" for name in models]
    if finished:
        parts.append(f"last run {finished[-1][:10]}")
    said = [run["facts"]["verified"] for run in runs if "verified" in run["facts"]]
    again = [text for text in said if text != UNVERIFIED]
    if len(said) > 1:
        parts.append(f"{len(again)} of {len(said)} entries measured again")
    elif said:
        parts.append(f"verified {again[0]}" if again else UNVERIFIED)
    return " · ".join(parts)


def _source(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
