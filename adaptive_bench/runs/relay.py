"""Progress across processes: workers put what they have to say on a queue, one thread of the parent says it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from typing import Any
from uuid import uuid4

from adaptive_bench.progress import Info, Meter, Reporter

_OVERALL = "overall"


class QueueReporter:
    """The reporter of a worker process."""

    def __init__(self, queue: Queue[Any]) -> None:
        self.queue = queue
        self.overall = QueueMeter(queue, _OVERALL)

    def task(self, name: str, total: float) -> Meter:
        """See `Reporter`."""
        meter = QueueMeter(self.queue, uuid4().hex)
        self.queue.put(("task", meter.id, name, total))
        return meter

    def line(self, text: str) -> None:
        """See `Reporter`."""
        self.queue.put(("line", text))


class QueueMeter(Meter):
    """A meter whose display is in the parent process."""

    def __init__(self, queue: Queue[Any], identity: str) -> None:
        self.queue, self.id = queue, identity

    def advance(self, units: float = 1, **info: Info) -> None:
        """See `Meter`."""
        self.queue.put(("advance", self.id, units, info))

    def end(self) -> None:
        """See `Meter`."""
        self.queue.put(("end", self.id))


@contextmanager
def relayed(queue: Queue[Any], reporter: Reporter, overall: Meter) -> Iterator[None]:
    """Say in this process what workers put on the queue; what is left at the end is said as well."""
    thread = threading.Thread(target=_say, args=(queue, reporter, overall), daemon=True)
    thread.start()
    try:
        yield
    finally:
        queue.put(("stop",))
        thread.join()


def _say(queue: Queue[Any], reporter: Reporter, overall: Meter) -> None:
    meters = {_OVERALL: overall}
    while True:
        match queue.get():
            case ("line", text):
                reporter.line(text)
            case ("task", identity, name, total):
                meters[identity] = reporter.task(name, total)
            case ("advance", identity, units, info):
                meters[identity].advance(units, **info)
            case ("end", identity):
                meters.pop(identity).end()
            case ("stop",):
                break
    for identity, meter in meters.items():
        if identity != _OVERALL:
            meter.end()
