"""Writes `docs/real_text.md` and its pictures from the records of runs with the preset `real_text`.

    python docs/real_text.py RUN_FOLDER...

A run's folder is the one its table is in (`runs/<key>` of its output folder). Everything on the page but its first
paragraph is read from there.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from adaptive_bench import atomic
from adaptive_bench.leaderboard.figures import installed, write_figures
from adaptive_bench.leaderboard.grid import Grid, Row, grids
from adaptive_bench.leaderboard.markdown import LEGEND
from adaptive_bench.results import read_run, read_table

PAGE = Path(__file__).parent / "real_text.md"
PICTURES = "real_text"  # folder beside the page
_HEAD = """<!-- Written by `python docs/real_text.py RUN_FOLDER...` from records; change that file instead. -->

# Real text

A small pretrained model is fine-tuned under every method on solutions of GSM8K and explanations of CommonsenseQA
(CoS-E), both written by people: the same text in the same order. Bits per byte of web pages (C4, documents that no
training or calibration saw) tell the methods apart at matched savings; the paper's tasks are measured beside it. A
model of this size solves none of them: look how far the dense model is from chance before reading differences."""
_SETTINGS = ("steps", "batch_size", "learning_rate", "max_length", "precision")


def render(runs: Mapping[Path, Mapping[str, Any]], tables: Mapping[Path, Sequence[Row]]) -> str:
    """The page.

    Args:
        runs: What `config.yaml` and `run.json` say, by folder.
        tables: Rows of `table.json`, by folder.
    """
    parts = [_HEAD, LEGEND]
    for folder, about in runs.items():
        parts += [f"## {Path(str(about['model'])).name}", _facts(about)]
        for grid in _headlines(tables[folder], about):
            parts += [f"### {grid.title}", *_picture(grid, about), grid.scores("github"), *grid.notes]
        training = next((grid.training("github") for grid in grids(tables[folder])), "")
        parts += ["### Training", training] if training else []
        notes = [f"* {' '.join(text.split())}" for text in (*about.get("failures", ()), *about.get("warnings", ()))]
        parts += ["### Notes", "\n".join(notes)] if notes else []
    return "\n\n".join(parts) + "\n"


def _facts(about: Mapping[str, Any]) -> str:
    train, measured = about["train"], about["evaluation"]
    facts = {name: train[name] for name in _SETTINGS} | {
        "trained on": ", ".join(about.get("train_on") or about["tasks"]),
        "seeds": ", ".join(map(str, about["seeds"])),
        "documents of each task": "all" if measured["limit"] is None else f"the first {measured['limit']}",
        "worked examples": measured["num_fewshot"],
        "state": about.get("state", "unfinished"),
        "took": "" if "took_s" not in about else f"{about['took_s'] / 60:.0f} min",
    }
    return tabulate(list(facts.items()), ("setting", "value"), "github", disable_numparse=True)


def _headlines(rows: Sequence[Row], about: Mapping[str, Any]) -> list[Grid]:
    """One table for each task: its first metric on the axis the run was matched on; of texts also by net FLOPs."""
    first: dict[str, str] = {}
    for row in rows:
        first.setdefault(row["task"], row["metric"])
    matched = about["match_on"], about["match_phase"]
    found = grids(row for row in rows if first[row["task"]] == row["metric"])
    return [
        grid
        for grid in found
        if (grid.axis, grid.phase) == matched or (_is_text(grid) and (grid.axis, grid.phase) == ("net", "all"))
    ]


def _is_text(grid: Grid) -> bool:
    return grid.task.startswith("perplexity:")


def _picture(grid: Grid, about: Mapping[str, Any]) -> list[str]:
    """Only curves are drawn that can tell methods apart: those of texts."""
    if not _is_text(grid):
        return []
    return [f"![{grid.title}]({PICTURES}/{_place(grid, about)})"]


def _place(grid: Grid, about: Mapping[str, Any]) -> str:
    return f"{Path(str(about['model'])).name}-{grid.task.partition(':')[2]}-{grid.axis}.svg"


def write(folders: Sequence[Path]) -> None:
    """Write page and pictures."""
    runs = {folder: read_run(folder / "config.yaml") for folder in folders}
    tables = {folder: read_table(folder / "table.json") for folder in folders}
    if damaged := [f"{folder}: {about['problem']}" for folder, about in runs.items() if "problem" in about]:
        sys.exit(f"A page is made from whole runs, but {'; '.join(damaged)}")
    if not installed():
        sys.exit("The pictures need matplotlib. Install it with `pip install 'adaptive-bench[figures]'`.")
    for folder, about in runs.items():
        for grid in _headlines(tables[folder], about):
            if _is_text(grid):
                _draw(grid, PAGE.parent / PICTURES / _place(grid, about))
    atomic.write_text(PAGE, render(runs, tables))
    print(f"Written: {os.path.relpath(PAGE)}")


def _draw(grid: Grid, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        written = write_figures(list(grid.cells.values()), Path(scratch), grid.axis, grid.phase)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(scratch) / next(name for name in written if name.endswith(".svg")), target)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    write([Path(argument) for argument in sys.argv[1:]])
