"""Python's side of `shim.c`: builds it, starts a process again with it, and arms it in a fork."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
LIBRARY = "ADAPTIVE_BENCH_FAULTS"  # where the built shim is, in the process that has it loaded


class How(IntEnum):
    """What becomes of operation number `at`; the same numbers as in `shim.c`."""

    PASS = 0
    KILL_BEFORE = 1
    KILL_HALF = 2  # a write reaches the file with its first half; what is no write is not done
    FAIL_ONCE = 3
    FAIL_FROM = 4  # this one and all after it
    FULL_FROM = 5  # as `FAIL_FROM`, of what needs space; the first write is done by half
    ASK = 6  # nothing: before every operation, and in the middle of every write, somebody is asked to let it go on


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, at an operation counted from 1.

    Attributes:
        error: What the operation fails with, unless the process is killed.
        clock_shift_s: Added to the clock on the wall, from operation `clock_from` on.
    """

    how: How = How.PASS
    at: int = 0
    error: int = 0
    clock_shift_s: int = 0
    clock_from: int = 0

    def __str__(self) -> str:
        name = self.how.name.lower().replace("_", " ") + (f" ({errno.errorcode[self.error]})" if self.error else "")
        clock = f", clock shifted by {self.clock_shift_s} s" if self.clock_shift_s else ""
        return f"{name} at operation {self.at}{clock}"


@dataclass(frozen=True)
class Operation:
    """A call that changes a file, as the shim logs it."""

    number: int
    kind: str
    path: str
    other: str


def build(folder: Path) -> Path:
    """Compile the shim with the system's C compiler."""
    library = folder / "shim.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
    return library


def start_again() -> None:
    """Become the same command with the shim loaded, unless this is it; nothing happens before `arm`."""
    if os.environ.get(LIBRARY):
        return
    library = build(Path(tempfile.mkdtemp()))
    os.environ |= {LIBRARY: str(library), "LD_PRELOAD": str(library)}
    os.execv(sys.executable, [sys.executable, *sys.argv])


def arm(fault: Fault, folder: Path, log: int = -1, answers: int = -1, other: Path | None = None) -> None:
    """From now on operations below one folder, or two, are counted in this process, and one goes wrong.

    Args:
        log: File descriptor that a line is written to before each operation.
        answers: With `How.ASK` one that a byte is read from before each.
    """
    call = ctypes.CDLL(os.environ[LIBRARY]).faults_arm
    call.argtypes = [ctypes.c_char_p, ctypes.c_char_p, *[ctypes.c_int] * 3, ctypes.c_long, ctypes.c_int]
    call.argtypes += [ctypes.c_longlong, ctypes.c_long]
    call.restype = None
    second = os.fsencode(other) if other is not None else b""
    clock = fault.clock_shift_s, fault.clock_from
    call(os.fsencode(folder), second, log, answers, fault.how, fault.at, fault.error, *clock)


def parse(line: str) -> Operation:
    """A line of the log."""
    number, kind, path, other = line.rstrip("\n").split("\t")
    return Operation(int(number), kind, path, other)


def read_log(file: Path) -> list[Operation]:
    """What the shim wrote."""
    return [parse(line) for line in file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()]
