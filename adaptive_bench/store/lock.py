"""Locks records, so that one process at a time works on each.

`<record>/.lock` names its owner, who renews its modification time every `BEAT_S` (the heartbeat) and removes it when
the work ends. The lock of a process of this machine that has ended counts for nothing. An owner on another machine
counts as alive until its heartbeat has been missing for `SILENCE_S`. A process that was only frozen finds out before
its next write that it is not the owner any more (`atomic.checked`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from filelock import SoftFileLease, Timeout

from adaptive_bench.errors import EnvironmentProblem, Superseded
from adaptive_bench.progress import Reporter
from adaptive_bench.store import atomic

LOCK = ".lock"
BEAT_S = 10.0  # between two heartbeats
# After this time without a heartbeat an owner on another machine counts as dead. Network folders may cache file times
# for up to 60 s.
SILENCE_S = 120.0
_LOOK_S = 0.5  # between two looks at the owner that a process waits for


def lease(record: Path) -> SoftFileLease:
    """Return the lock of a record, not taken. It counts the silence of an owner from its own first look on."""
    return SoftFileLease(
        record / LOCK,
        lease_duration=SILENCE_S,
        heartbeat_interval=BEAT_S,
        poll_interval=_LOOK_S,
        thread_local=False,
    )


def owner_text(record: Path) -> str:
    """Return who works on a record, or did when it was killed: `process 17 on node3`."""
    found = lease(record).owner
    # In a container a sign of it follows the name of the machine.
    return "another process" if found is None else f"process {found.pid} on {found.hostname.partition('?')[0]}"


def is_held(record: Path, looking: SoftFileLease | None = None) -> bool:
    """Whether a process works on a record. The lock of one that has ended is removed.

    Args:
        looking: The record's lock, if it is looked at again and again: an owner on another machine counts as ended once
            it was seen silent for long enough. Without it such an owner counts as alive.
    """
    if not (record / LOCK).exists():
        return False
    try:
        with (looking or lease(record)).acquire(timeout=0):
            return False
    except (Timeout, OSError):  # it is held, or it is impossible to tell
        return True


@contextmanager
def exclusive(record: Path, what: str, reporter: Reporter) -> Iterator[None]:
    """Take a record as soon as no other process works on it, and hold it within the block.

    Args:
        what: The work, for the reader.

    Raises:
        Superseded: Raised in the block by its next write: another process has taken the record over.
        EnvironmentProblem: The folder cannot be written, or was removed while the block worked in it.
    """
    mine = lease(record)
    with atomic.writable(record):
        record.mkdir(parents=True, exist_ok=True)
        try:
            mine.acquire(timeout=0)
        except Timeout:
            reporter.line(f"{what}: {owner_text(record)} is running it, waiting for its result")
            mine.acquire()
    try:
        for path in record.glob(f".*{atomic.TEMPORARY}"):
            atomic.discard(path)
        with atomic.checked(partial(_check, record, mine.token)):
            yield
    finally:
        mine.release()


def _check(record: Path, token: str | None) -> None:
    """Raise unless this process still owns the record. Another process may take it between this check and the write;
    that race is accepted, because it needs an owner whose heartbeat was missing for `SILENCE_S`.
    """
    found = lease(record).owner
    if found is not None and found.token == token:
        return
    if not record.is_dir() or not any(record.iterdir()):
        raise EnvironmentProblem(
            f"The folder of a record must stay while work goes on, but {str(record)!r} was removed or emptied. What "
            "was done there is lost; give the same command again."
        )
    raise Superseded(
        f"Another process has taken over the work in {str(record)!r} ({owner_text(record)}); this process may not "
        "write there any more. Nothing is lost: the other one goes on from the newest checkpoint."
    )
