"""Locks records, so that one process at a time works on each.

<record>/.lock     locked by the operating system while the owning process lives; the death of a process unlocks it
<record>/.owner    names the owner; the owner renews its modification time every `BEAT_S` (its heartbeat)

Both files are removed when the work ends; a killed process leaves them behind. The lock decides among processes of one
machine. Machines that share a folder may not share locks, so an owner on another machine counts as alive until its
heartbeat has been missing for `SILENCE_S`. A process that was only frozen finds out before its next write that it is
not the owner any more (`atomic.checked`).
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from adaptive_bench.errors import EnvironmentProblem, Superseded
from adaptive_bench.progress import Reporter
from adaptive_bench.store import atomic

LOCK, OWNER = FILES = (".lock", ".owner")
BEAT_S = 10.0  # between two heartbeats
# After this time without a heartbeat an owner on another machine counts as dead. Network folders may cache file times
# for up to 60 s.
SILENCE_S = 120.0
_LOOK_S = 0.5  # between two looks at the owner that a process waits for


@dataclass(frozen=True)
class Owner:
    """A process that works on a record, since the time when it took it."""

    host: str
    pid: int
    since: str

    @classmethod
    def here(cls) -> Self:
        """Return this process as an owner from now on."""
        return cls(platform.node(), os.getpid(), datetime.now(UTC).isoformat())

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def owner(record: Path) -> Owner | None:
    """Return the process that works on a record, or that did when it was killed; `None` if none is named."""
    try:
        found = json.loads((record / OWNER).read_bytes())
        return Owner(found["host"], found["pid"], found["since"])
    except (FileNotFoundError, LookupError, TypeError, ValueError):
        return None


def _is_silent(record: Path) -> bool:
    """Whether the heartbeat of a record's owner has been missing for `SILENCE_S`, by the times of files."""
    # An error means that nothing can be written there, or that the owner has just gone: it is impossible to tell.
    with suppress(OSError), tempfile.TemporaryFile(dir=record) as now:
        return os.fstat(now.fileno()).st_mtime - (record / OWNER).stat().st_mtime > SILENCE_S
    return False


def is_held(record: Path) -> bool:
    """Whether a process works on a record."""
    try:
        if (found := owner(record)) is not None and found.host != platform.node():
            return not _is_silent(record)
        with (record / LOCK).open("rb") as file:
            # Shared, so that two processes that only look do not take each other for the owner; closing it unlocks it.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # it is locked, or it is impossible to tell
        return True
    return False


@contextmanager
def exclusive(record: Path, what: str, reporter: Reporter) -> Iterator[None]:
    """Take a record as soon as no other process works on it, and hold it within the block; `what` names the work.

    Raises:
        Superseded: Raised in the block by its next write: another process has taken the record over.
        EnvironmentProblem: The folder cannot be written, or was removed while the block worked in it.
    """
    me = Owner.here()
    with atomic.writable(record):
        record.mkdir(parents=True, exist_ok=True)
        lock = _take(record, me, what, reporter)
    stop = threading.Event()
    heartbeat = threading.Thread(target=_beat, args=(record, me, stop), daemon=True)
    heartbeat.start()
    try:
        with atomic.checked(partial(_check, record, me)):
            yield
    finally:
        stop.set()
        heartbeat.join()  # before the owner file goes: a beat must not meet that of the next owner
        # An error of the block must not be hidden by one of these; `Record.mark_done` removes what is left.
        with suppress(OSError):
            if owner(record) == me:
                # Safe while it is locked: `filelock` tries again if the file that it has locked is gone by then.
                # The owner file first: without the lock, it could be that of the next process already.
                for name in (OWNER, LOCK):
                    (record / name).unlink()
        lock.release()


def _take(record: Path, me: Owner, what: str, reporter: Reporter) -> FileLock:
    lock, told = FileLock(record / LOCK), False
    beat_ns, since_s = -1, 0.0  # the heartbeat seen last, and since when by this process's own clock
    try:
        while True:
            with suppress(Timeout):
                lock.acquire(_LOOK_S, _LOOK_S / 2)  # not forever: an owner may be silent while it still holds the lock
            found = owner(record)
            # On this machine the system unlocks what a dead process held. For another one only the heartbeat counts.
            elsewhere = found is not None and found.host != me.host
            if elsewhere and (seen_ns := _beat_ns(record)) != beat_ns:
                beat_ns, since_s = seen_ns, time.monotonic()
            if time.monotonic() - since_s > SILENCE_S if elsewhere else lock.is_locked:
                if lock.is_locked:
                    break
                # A machine that was cut off still holds the lock. A new lock file takes the place of the locked one.
                (record / LOCK).unlink(missing_ok=True)
                continue
            if not told:
                reporter.line(f"{what}: {found or 'another process'} is running it, waiting for its result")
                told = True
            if lock.is_locked:
                lock.release()
                # The owner does not share locks, so `acquire` got this one at once and did not wait.
                time.sleep(_LOOK_S)
        # From here on the previous owner, if it was only frozen, is refused its next write.
        atomic.write_json(record / OWNER, asdict(me))
        # Whoever wrote these is not the owner any more; `atomic` would leave those of other machines.
        for path in record.glob(f".*{atomic.TEMPORARY}"):
            atomic.discard(path)
    except BaseException:
        lock.release()
        raise
    return lock


def _beat_ns(record: Path) -> int:
    with suppress(OSError):
        return (record / OWNER).stat().st_mtime_ns
    return 0  # a missing owner file is silence, too


def _check(record: Path, me: Owner) -> None:
    """Raise unless this process still owns the record. Another process may take it between this check and the write;
    that race is accepted, because it needs an owner whose heartbeat was missing for `SILENCE_S`.
    """
    if (found := owner(record)) == me:
        return
    if not record.is_dir() or not any(record.iterdir()):
        raise EnvironmentProblem(
            f"The folder of a record must stay while work goes on, but {str(record)!r} was removed or emptied. What "
            "was done there is lost; give the same command again."
        )
    raise Superseded(
        f"Another process has taken over the work in {str(record)!r} ({found or 'it is done by now'}); this "
        "process may not write there any more. Nothing is lost: the other one goes on from the newest checkpoint."
    )


def _beat(record: Path, me: Owner, stop: threading.Event) -> None:
    while not stop.wait(BEAT_S):
        with suppress(OSError):
            if owner(record) == me:  # after a takeover, do not keep the new owner alive
                os.utime(record / OWNER)
