"""Measures how far a run's progress bar is off: the remaining time it gave against the time that really remained.

    python benchmarks/progress_bar.py                       # the default run, into a fresh folder
    python benchmarks/progress_bar.py --events events.jsonl  # judge a run that was recorded before
    python benchmarks/progress_bar.py --config smoke --record events.jsonl

All advances of tasks are recorded with their time and with the processor time of the run's processes. On a busy
machine, the error in processor time shows what the error would have been on an idle one.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, TextIO

from adaptive_bench.config_file import load_config
from adaptive_bench.progress import EtaEstimator, Event, Line, Reporter, TaskAdvanced, TaskFinished, TaskStarted

_FIRST_S, _EVERY_S = 60.0, 10.0
_ALLOWED = 0.3
_OVERALL = "run"


class Recorder(Reporter):
    """Writes `[seconds, processor seconds, what, task, total or units]` for every event.

    Args:
        file: Gets one line of JSON per event, written at once, so that a run that was stopped can be judged too.
    """

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.start_s = time.perf_counter()
        self.labels: dict[str, str] = {}

    def emit(self, event: Event) -> None:
        match event:
            case Line(text):
                self.note("line", text, 0.0)
            case TaskStarted(task, label, total):
                self.labels[task] = label
                self.note("task", label, total)
            case TaskAdvanced(task, units, _, left_s):
                self.note("advance", self.labels[task], units)
                if left_s is not None:
                    self.note("expect", self.labels[task], left_s)
            case TaskFinished(task):
                self.note("end", self.labels.pop(task), 0.0)

    def note(self, what: str, name: str, units: float) -> None:
        event = (time.perf_counter() - self.start_s, processor_s(), what, name, units)
        self.file.write(json.dumps(event) + "\n")
        self.file.flush()


def processor_s() -> float:
    """Processor time of this process and of its child processes, read from Linux's /proc."""
    total, tick = time.process_time(), os.sysconf("SC_CLK_TCK")
    for task in Path("/proc/self/task").glob("*/children"):
        for child in task.read_text().split():
            try:
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += (int(fields[11]) + int(fields[12])) / tick
    return total


def read(file: Path) -> list[list[Any]]:
    """The events that a recorder has written."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def judged(events: list[list[Any]], clock: int) -> list[tuple[float, float, float]]:
    """For every ten seconds of a run after its first minute: the time, the estimated rest, and the true rest.

    Args:
        events: The recorded events.
        clock: 0 counts in seconds, 1 in processor time.
    """
    mine = [event for event in events if event[3] == _OVERALL]
    total, begun, ended = mine[0][4], mine[0][clock], mine[-1][clock]
    done, eta, found, due = 0.0, EtaEstimator(), [], begun + _FIRST_S
    for event in mine:
        now = event[clock]
        if event[2] == "advance":
            done += event[4]
            eta.note(now, done)
        if event[2] == "expect":
            eta.note(now, done, event[4])
        if now >= due and now < ended and (said := eta.left_s(now, total)) is not None:
            due = now + _EVERY_S
            found.append((now - begun, said, ended - now))
    return found


def by_kind(events: list[list[Any]]) -> dict[str, float]:
    """Seconds before the advances of each task, since its previous event, by the task's name without its seed."""
    last: dict[str, float] = {}
    spent: defaultdict[str, float] = defaultdict(float)
    for seconds, _, what, name, _ in events:
        if what in ("advance", "end") and name in last and name != _OVERALL:
            spent[name.partition(": ")[2] or name] += seconds - last[name]
        last[name] = seconds
    return dict(sorted(spent.items(), key=lambda pair: -pair[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", default="nano")
    parser.add_argument("--events", type=Path)
    parser.add_argument("--record", type=Path)
    asked = parser.parse_args()
    if asked.events:
        events = read(asked.events)
    else:
        from adaptive_bench.runs import run

        with tempfile.TemporaryDirectory() as out:
            file = asked.record or Path(out) / "events.jsonl"
            with file.open("w", encoding="utf-8") as stream:
                run(load_config(asked.config, {"out": out}), Recorder(stream))
            events = read(file)
    for clock, name in ((0, "seconds"), (1, "processor time")):
        found = judged(events, clock)
        print(f"counted in {name}:   at   said  truly   off")
        for at, said, truly in found:
            print(f"{at:20.0f} {said:6.0f} {truly:6.0f} {said / truly - 1:+6.0%}" if truly else "")
        worst = max((abs(said / truly - 1) for _, said, truly in found if truly >= _EVERY_S), default=0.0)
        print(f"never off by more than {worst:.0%} of what was left; {_ALLOWED:.0%} is allowed\n")
    for name, seconds in by_kind(events).items():
        print(f"{seconds:8.1f} s {name}")


if __name__ == "__main__":
    main()
