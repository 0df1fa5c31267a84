"""What work leaves in its record beside its results: its state, what it was made with, and what it said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from adaptive_bench import guard, stopping
from adaptive_bench.errors import Superseded
from adaptive_bench.faults import is_exit_of_plugin
from adaptive_bench.progress import Event, Line, Reporter, TaskAdvanced, TaskStarted
from adaptive_bench.runs.records.folders import Record, environment


class RecordedReporter(Reporter):
    """Says what the work is about before everything it passes on, and keeps the lines in the record's log. Work ends
    here that was asked to stop: what is counted is kept.
    """

    def __init__(self, reporter: Reporter, record: Record, about: str) -> None:
        self._reporter, self._record, self._about = reporter, record, about

    def emit(self, event: Event) -> None:
        """See `Reporter`."""
        match event:
            case Line(text):
                self._record.log(text)
                event = Line(f"{self._about}: {text}")
            case TaskStarted():
                event = replace(event, label=f"{self._about}: {event.label}")
        self._reporter.emit(event)
        if isinstance(event, TaskAdvanced):
            stopping.check()


@contextmanager
def recorded(record: Record, content: Mapping[str, Any], device: torch.device) -> Iterator[None]:
    """Keep the state of some work on disk, whatever becomes of it; unless somebody else has taken it over."""
    record.begin(content)
    record.write("env.json", environment(str(device), torch.get_num_threads()))
    try:
        yield
        guard.check()
    except Superseded:
        raise
    except Exception as error:
        record.fail(error)
        raise
    except BaseException as error:
        if isinstance(error, SystemExit) and is_exit_of_plugin(error):
            record.fail(error)
        else:
            record.move("partial")
        raise
    record.move("done")
