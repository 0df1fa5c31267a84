"""The journal of a study: Optuna's log in a file, which a process may be killed on while it writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from filelock import FileLock
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from adaptive_bench.store import atomic


class Journal(JournalFileBackend):
    """Optuna's journal with a lock that ends with the process that has it, and no line that was cut short.

    The lock that Optuna takes by default is a link in the folder: a killed process leaves it, and it is waited for for
    half a minute, or for ever where the path of the journal is relative. A line that a full disk or a power cut has cut
    short would spoil the next one, and with it the study.

    Args:
        file: Beside it there is a lock file, which stays.
    """

    def __init__(self, file: Path) -> None:
        self._path, self._exclusive = file, FileLock(file.with_suffix(".lock"))
        with atomic.writable(file):
            super().__init__(str(file), _Lock(self._exclusive))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """See `JournalFileBackend`.

        Raises:
            EnvironmentProblem: The file cannot be written.
        """
        with atomic.writable(self._path), self._exclusive:
            _cut_to_whole_lines(self._path)
            super().append_logs(logs)


class _Lock(JournalFileOpenLock):
    """A `FileLock` as Optuna asks for it; nothing is left of the lock it is named after."""

    def __init__(self, lock: FileLock) -> None:
        super().__init__(lock.lock_file)
        self._lock = lock

    def acquire(self) -> bool:
        self._lock.acquire()
        return True

    def release(self) -> None:
        self._lock.release()


def _cut_to_whole_lines(file: Path) -> None:
    with file.open("rb+") as stream:
        size = stream.seek(0, os.SEEK_END)
        if not size:
            return
        stream.seek(-1, os.SEEK_END)
        if stream.read(1) != b"\n":
            stream.seek(0)
            stream.truncate(stream.read().rfind(b"\n") + 1)
