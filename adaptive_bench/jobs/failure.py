"""Work that could not be done, and why."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adaptive_bench.errors import UsageError, message_of
from adaptive_bench.faults import explained
from adaptive_bench.jobs.plugins import named_plugins


@dataclass(frozen=True)
class Failure:
    """Work that could not be done, and why.

    Attributes:
        work: What it was.
        reason: What went wrong and what to do.
        kind: Whose fault it is: the `kind` of an error (see `adaptive_bench.errors`).
        log: The file that has the traceback, if the work got that far.
        trace: The traceback itself.
    """

    work: str
    reason: str
    kind: str = UsageError.kind
    log: Path | None = None
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.work}: {self.cause}"

    @property
    def was_tried(self) -> bool:
        """Whether somebody was at it and failed; else it waits for whoever does it."""
        return self.kind not in ("Not finished", "Not listed")

    @property
    def cause(self) -> str:
        """The reason with its kind and its log."""
        return f"{self.kind}: {self.reason}" + (f" Log: {self.log}" if self.log else "")


@contextmanager
def caught(
    failures: list[Failure],
    label: str,
    method: str,
    tasks: Iterable[str] = (),
    log: Callable[[], Path | None] = lambda: None,
) -> Iterator[None]:
    """Note an error in the block as the failure of some work.

    Args:
        label: What the work is called.
        method: Whose code it runs.
        tasks: Likewise.
        log: Gives the file that has the traceback, if the error got there.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - one broken method must not cost the results of the others
        found = explained(error, named_plugins([method], tasks))
        trace = "".join(traceback.format_exception(error))
        failures.append(Failure(label, message_of(found), found.kind, log(), trace))
