"""Dial tables of a board: which dial value gave which saving, from the measured points of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from adaptive_bench.tables.dials import DialLine, DialPoint, DialTable, immovable, spec_of

from .answers import Answers, SweptAnswers
from .frame import Board
from .numbers import number, percent
from .rows import first_metrics
from .tables import NONE

NOTE = (
    "Means over the seeds. asked: share of token-branches the dial was set to skip, by thresholds of the calibration "
    "text where there are any. Savings in % of the dense model, as measured on this task; all of them, and saved time "
    "by setting, are in dials.csv.gz."
)
MOST_LINES = 2000  # of a page; the CSV has all
_SAVED = {
    "tokens": "tokens", "net": "net", "prefill net": "prefill_net", "decode net": "decode_net",
}  # fmt: skip
HEADER = ("method", "asked", "dial", *_SAVED, "score", "seeds")


def sections(board: Board) -> list[dict[str, Any]]:
    """What a page shows: of each run and task `title`, `header`, `lines` as texts, and `said` of dials that cannot move
    the task; none where no run says its dial values.
    """
    several = len(board.answers) > 1
    shown: list[dict[str, Any]] = []
    for (run, task, metric), tables in _by_task(board).items():
        lines = [_texts(table.name, line, metric) for table in tables for line in table.lines(metric)]
        if sum(len(one["lines"]) for one in shown) + len(lines) <= MOST_LINES:
            about = {"title": f"{task} ({run})" if several else task, "metric": metric, "header": HEADER}
            shown.append(about | {"lines": lines, "said": immovable(tables, metric)})
    return shown


def immovable_dials(board: Board) -> Iterator[str]:
    """The sentences of dials that cannot move a task, or a phase of it."""
    for (_, _, metric), tables in _by_task(board).items():
        yield from immovable(tables, metric)


def as_lines(board: Board) -> list[dict[str, Any]]:
    """One plain line for each run, task, method and asked saving: all savings, and saved time by setting."""
    found = []
    every = _by_task(board).items()
    for run, metric, table in ((run, metric, table) for (run, _, metric), some in every for table in some):
        for line in table.lines(metric):
            about = {"run": run, "task": table.task, "method": table.method, "target": table.target}
            about |= {"asked": line.asked, "dial": line.dial[0], "dial_largest": line.dial[1], "seeds": line.seeds}
            about |= {f"saved_{name}": value for name, value in line.saved.items()}
            about |= {f"saved_time, {setting}": value for setting, value in line.times.items()}
            for setting, ms in table.plain_ms.items():
                if setting in line.times:
                    about[f"ms_per_token, {setting}"] = ms * (1 - line.times[setting])
            found.append(about | {"metric": metric, "score": line.score})
    columns = dict.fromkeys(name for one in found for name in one)
    return [{name: one.get(name) for name in columns} for one in found]


def _by_task(board: Board) -> dict[tuple[str, str, str], list[DialTable]]:
    """By run, task and the task's first metric every method's table."""
    metrics = first_metrics(board.rows)
    found: dict[tuple[str, str, str], list[DialTable]] = {}
    for run, answers in board.answers.items():
        for table in _tables(answers):
            if table.task in metrics:
                found.setdefault((run, table.task, metrics[table.task]), []).append(table)
    return found


def _tables(answers: Answers) -> Iterator[DialTable]:
    for (method, semantics, task, target), sweeps in answers.sweeps.items():
        if all(sweep.dials for sweep in sweeps):
            seeds = {sweep.seed: _points(sweep) for sweep in sweeps}
            yield DialTable(spec_of(method, semantics), task, target, seeds, sweeps[0].plain_ms)


def _points(sweep: SweptAnswers) -> list[DialPoint]:
    asked: Sequence[float | None] = sweep.asked or [None] * len(sweep.dials)
    return [
        DialPoint(dial, want, saved, times, {metric: values.tolist() for metric, values in scores.items()})
        for dial, want, (saved, times, scores) in zip(sweep.dials, asked, sweep.points, strict=True)
    ]


def _texts(name: str, line: DialLine, metric: str) -> list[str]:
    low, high = (f"{end:.4g}" for end in line.dial)
    return [
        name,
        NONE if line.asked is None else f"{percent(line.asked)}",
        low if low == high else f"{low} to {high}",
        *(NONE if (saved := line.saved.get(key)) is None else percent(saved) for key in _SAVED.values()),
        NONE if line.score is None else number(metric, line.score),
        str(line.seeds),
    ]
