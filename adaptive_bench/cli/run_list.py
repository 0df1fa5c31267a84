"""Runs as `list runs` shows them: by name, with what tells one from another, and only those that are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from adaptive_bench import registry
from adaptive_bench.cli.tables import fits, fitting, terminal_width, wrapped
from adaptive_bench.errors import UsageError
from adaptive_bench.store.results import read_run
from adaptive_bench.store.runs import run_folders, run_name

STATES = ("done", "partial", "unfinished", "damaged")
_UNSAID = {"documents": "all", "shots": "own"}  # what a config means that does not say it
_TO_THE_MINUTE = len("2026-11-21T19:20")


@dataclass(frozen=True)
class Wanted:
    """Which runs are listed: those that fit everything that is not `None`.

    Attributes:
        model, task, method: A part of the model's name, of the name of one of the tasks, of one of the method specs.
        state: One of `STATES`.
        since: The first day, as `2026-11-20`.
    """

    model: str | None = None
    task: str | None = None
    method: str | None = None
    state: str | None = None
    since: str | None = None

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in STATES:
            hint = registry.did_you_mean(self.state, STATES)
            raise UsageError(f"--status is one of {', '.join(STATES)}, got {self.state!r}. {hint}")
        if self.since is not None and not _is_day(self.since):
            raise UsageError(f"--since takes a day like 2026-11-20, got {self.since!r}. Write it so.")

    def fit(self, run: Mapping[str, Any]) -> bool:
        """Whether a run is wanted."""
        parts = [
            self.model is None or self.model in str(run["model"]),
            self.task is None or any(self.task in str(name) for name in run["tasks"]),
            self.method is None or any(self.method in str(spec) for spec in run["methods"]),
            self.state in (None, run["state"]),
            self.since is None or run["date"] >= self.since,
        ]
        return all(parts)


def _is_day(text: str) -> bool:
    """Whether a text is a day as runs write theirs: `20261120` is the same day to Python, but sorts elsewhere."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def runs_in(out: Path, wanted: Wanted) -> list[dict[str, Any]]:
    """Runs that were begun in a folder, the newest first. A damaged one is named and costs nothing more."""
    return [run for run in map(_run, run_folders(out)) if wanted.fit(run)]


def shown(runs: Iterable[Mapping[str, Any]], width: int | None = None) -> str:
    """The runs as one table where there is room for it, else as a paragraph each."""
    rows = [_columns(run) for run in runs]
    if fits(rows, width):
        return fitting(rows, width)
    return "\n\n".join(_paragraph(row, width) for row in rows)


def _run(folder: Path) -> dict[str, Any]:
    """A run as it is listed."""
    about = read_run(folder / "config.yaml")
    measuring, training = about.get("evaluation", {}), about.get("train", {})
    return {
        "run": run_name(folder),
        "state": about.get("state", "unfinished"),
        "model": about.get("model", ""),
        "methods": about.get("methods", []),
        "tasks": about.get("tasks", []),
        "seeds": about.get("seeds", []),
        "steps": training.get("steps"),
        "documents": measuring.get("limit"),
        "shots": measuring.get("num_fewshot"),
        "date": str(about.get("finished") or about.get("began") or "")[:_TO_THE_MINUTE].replace("T", " "),
        "problem": about.get("problem", ""),
        "folder": str(folder),
    }


def _text(key: str, value: Any) -> str:
    if value is None:
        return _UNSAID.get(key, "")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _columns(run: Mapping[str, Any]) -> dict[str, str]:
    texts = {key: _text(key, value) for key, value in run.items()}
    state = texts["state"] + (f": {texts['problem']}" if texts["problem"] else "")
    return {key: text for key, text in texts.items() if key not in ("problem", "folder")} | {"state": state}


def _paragraph(row: Mapping[str, str], width: int | None) -> str:
    shots = "each task's worked examples" if row["shots"] == "own" else f"{row['shots']} worked examples"
    lines = ["  ".join(filter(None, (row["run"], row["date"], row["state"])))]
    if row["methods"]:
        seeds = f"seed{'s' if ',' in row['seeds'] else ''} {row['seeds']}"
        lines.append(f"{row['methods']} on {row['tasks']}")
        how = f"{row['steps']} steps, {row['documents']} documents, {shots}, {seeds}"
        lines.append(f"model {row['model']}, {how}")
    first, *others = (wrapped(line, (width or terminal_width()) - 2, "  ") for line in lines)
    return "\n".join([first, *(f"  {line}" for line in others)])
