"""The figures of the documentation, by file name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from adaptive_bench.docs import charts, mechanisms, results, schemes


def figures(records: Path) -> dict[str, str]:
    """SVG by file name.

    Args:
        records: The folder `docs/records`, which numbers are taken from.
    """
    names = ("nano_steps", "nano_headroom", "nano_trials")
    steps, headroom, trials = (_record(records / f"{name}.json") for name in names)
    found = {
        "branch": schemes.branch(),
        "shuffled": schemes.shuffled(),
        "axes": charts.axes(steps),
        "ranks": charts.ranks(steps),
        "headroom": charts.headroom(headroom),
        "trials": results.trials(trials),
        "speculation": mechanisms.speculation(),
    }
    return {f"{name}.svg": drawing.svg() for name, drawing in found.items()}


def write(folder: Path, records: Path) -> None:
    """Write all figures and remove those that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    written = figures(records)
    for old in folder.glob("*.svg"):
        if old.name not in written:
            old.unlink()
    for name, svg in written.items():
        (folder / name).write_text(svg, encoding="utf-8")


def _record(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
