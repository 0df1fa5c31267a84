"""Who makes an attempt: a process on a machine, and the start of a scheduler's job it belongs to."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

# Set by launchers: equal for all starts of one piece of a job, and how often it was started before.
JOB_VARIABLE, RESTART_VARIABLE = "ADAPTIVE_BENCH_JOB", "ADAPTIVE_BENCH_RESTART"


@dataclass(frozen=True)
class Holder:
    """A process, told apart from all others there have been.

    Attributes:
        host: Name of the machine.
        boot: Changes with every start of the machine; empty where the system does not say.
        space: The set of process ids `pid` is one of: containers have sets of their own.
        pid: Process id.
        started: When the process was started, in a unit of the system's own; empty where it does not say.
        job: The piece of a scheduler's job it belongs to; empty outside of any.
        restart: How often the scheduler had started that piece before.
        since: When it took the work, for the reader.
    """

    host: str
    boot: str
    space: str
    pid: int
    started: str
    job: str
    restart: int
    since: str

    @classmethod
    def here(cls) -> Self:
        """This process."""
        restart = os.environ.get(RESTART_VARIABLE, "")
        return cls(
            host=platform.node(),
            boot=_boot(),
            space=_space(),
            pid=os.getpid(),
            started=_started(os.getpid()) or "",
            job=os.environ.get(JOB_VARIABLE, ""),
            restart=int(restart) if restart.isdigit() else 0,
            since=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """What `to_json` gave; `None` if the file is not complete or of another version."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            return cls(**{field.name: values[field.name] for field in fields(cls)})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @property
    def is_here(self) -> bool:
        """Whether it is this process."""
        here = (platform.node(), _boot(), _space(), os.getpid(), _started(os.getpid()) or "")
        return here == (self.host, self.boot, self.space, self.pid, self.started)

    @property
    def is_gone(self) -> bool | None:
        """Whether the process has ended; `None` if it is none of this machine's that could be looked at."""
        if self.host != platform.node():
            return None
        if self.boot != _boot():
            return True
        if self.space != _space():
            return None
        started = _started(self.pid)
        return started is None or started != self.started

    def restarts(self, earlier: Holder) -> bool:
        """Whether this is a later start of the same piece of a job."""
        return bool(self.job) and self.job == earlier.job and self.restart > earlier.restart

    def __str__(self) -> str:
        job = f" ({self.job}, start {self.restart + 1})" if self.job else ""
        return f"process {self.pid} on {self.host}{job}"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process was started; empty if the system does not say, `None` if there is no such process."""
    try:
        # The name of the program, in brackets, may hold anything.
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() or not _answers(pid) else ""
    return None if text[0] == "Z" else text[19]


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
