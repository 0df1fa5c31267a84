"""Ends a command at every one of its operations on files, gives it again, and compares what is on disk at the end.

    python tests/faults/every_file_operation.py run                  # killed before each operation, amid each write
    python tests/faults/every_file_operation.py run --fault power    # and what was not synced by then is gone
    python tests/faults/every_file_operation.py run --fault full     # from there on the disk is full
    python tests/faults/every_file_operation.py run --fault EIO      # this operation alone fails; so does any errno
    python tests/faults/every_file_operation.py run --draw 20        # at so many of them

A library loaded with LD_PRELOAD (`shim.c`) numbers every call that changes a file of the output folder. What `kill -9`
leaves at an operation is what lies on disk when it begins: one run is held before each of them (and in the middle of
each write), its folder is copied, and the command given again on every copy. A power cut takes the content of files as
well that were not synced by then. Errors are made in the run itself, which must end with an error that a user can act
on, or as if nothing had been; then the command is given again.

Afterwards every file must have the bytes it has after a run that was left alone, and nothing may be left behind (see
`snapshot`). Needs gcc. One process imports the libraries and is forked for every run.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import commands
import shim
from commands import Command, Ending, differences, look_at
from shim import Fault, How, Operation

WRITES = {"write", "pwrite", "writev", "sendfile"}
TAKES_SPACE = WRITES | {"open-create", "fopen", "mkdir", "rename", "symlink", "truncate"}
_RENAMED_UNSEEN = re.compile(r"/\.tmp[A-Za-z0-9]{6}$")  # by safetensors, see `shim.c`
FULL = {errno.ENOSPC: "No space left", errno.EDQUOT: "quota exceeded"}


@dataclass(frozen=True)
class Point:
    """Where a command ends.

    Attributes:
        number: Of the operation, from 1.
        when: `before`, or of a write `half` or `written`.
        kind, file: What is done to which kind of file.
    """

    number: int
    when: str
    kind: str
    file: str

    def __str__(self) -> str:
        return f"{self.number} {self.when} ({self.kind} {self.file})"


@dataclass(frozen=True)
class Trial:
    """What came of it.

    Attributes:
        first: Exit code of the command that was disturbed; `None` of one that was killed.
        code: Exit code of the same command given again; `None` if it hangs.
        wrong: Everything that is not as it should be.
    """

    point: Point
    first: int | None
    code: int | None
    seconds: float
    wrong: list[str] = field(default_factory=list)


class FaultSweep:
    """One command, what it leaves when nothing happens, and what it leaves after a fault."""

    def __init__(self, command: Command, home: Path) -> None:
        self.command, self.home = command, home
        whole = self.out = self._whole()
        self.expected = command.reads(whole)
        if remains := command.remains(whole):
            raise SystemExit("A command that is left alone leaves something:\n" + "\n".join(remains))
        shutil.rmtree(whole)

    def _whole(self) -> Path:
        out = self.home / "out"
        ending = self.command.give(self.home / "whole", out)
        if ending.code:
            raise SystemExit(f"A command that is left alone ends with {ending.code}:\n{ending.output}")
        self.operations = ending.operations
        return out

    def points(self, *, amid: bool) -> list[Point]:
        """Every operation, and amid every write."""
        found = []
        for one in self.operations:
            name = kind_of_file(one, self.out)
            found.append(Point(one.number, "before", one.kind, name))
            if amid and one.kind in WRITES:
                found.append(Point(one.number, "half", one.kind, name))
            if amid and one.kind in WRITES and _RENAMED_UNSEEN.search(one.path):
                found.append(Point(one.number, "written", one.kind, name))
        return found

    def states(self, points: Sequence[Point], *, power_cut: bool) -> dict[Point, Path]:
        """What lies on disk at each point, copied while one run is held there."""
        wanted = {(point.number, point.when): point for point in points}
        states: dict[Point, Path] = {}
        out, unsynced = self.home / "out", Unsynced()

        def keep(operation: Operation) -> None:
            when = operation.kind if operation.kind in ("half", "written") else "before"
            point = wanted.get((operation.number, when))
            if point is not None and out.is_dir():
                copy = self.home / "states" / f"{point.number}{point.when}"
                shutil.copytree(out, copy, symlinks=True)
                if power_cut and not unsynced.lose(out, copy):
                    shutil.rmtree(copy)  # the same as after a kill
                else:
                    states[point] = copy
            unsynced.see(operation)

        ending = self.command.give(self.home / "held", out, watch=keep)
        if ending.code:
            raise SystemExit(f"A command that is held ends with {ending.code}:\n{ending.output}")
        shutil.rmtree(out)
        return states

    def killed(self, points: Sequence[Point], *, power_cut: bool) -> Iterator[Trial]:
        """The command given again after a kill at each point."""
        for point, state in self.states(points, power_cut=power_cut).items():
            state.rename(self.home / "out")
            yield self._again(point, None, look_at(self.home / "out"))

    def failing(self, points: Sequence[Point], how: How, error: int) -> Iterator[Trial]:
        """As `killed`, but the operation fails with an error."""
        for point in points:
            ending = self.command.give(self.home / "first", self.home / "out", Fault(how, point.number, error))
            yield self._again(point, ending.code, self._said(ending, error) + look_at(self.home / "out"))

    def _said(self, ending: Ending, error: int) -> list[str]:
        if ending.code == 0:
            wrong = differences(self.expected, self.command.reads(self.home / "out"))
            return [f"It ended well, but {text}" for text in wrong]
        if ending.code is None:
            return ["It hangs after the error."]
        text = " ".join(ending.output.split())
        blamed = [word for word in ("Defect", "Traceback", "Plugin fault") if word in text]
        wrong = [f"It ends with {word!r}: {text[-600:]}" for word in blamed]
        reason = FULL.get(error, os.strerror(error))
        return wrong + ([] if reason in text else [f"It does not say {reason!r}: {text[-600:]}"])

    def _again(self, point: Point, first: int | None, wrong: list[str]) -> Trial:
        out = self.home / "out"
        ending = self.command.give(self.home / "again", out)
        if ending.code:
            wrong.append(f"Given again it ends with {ending.code}: {' '.join(ending.output.split())[-1000:]}")
        if ending.code is None:
            wrong.append(f"Given again it hangs: {' '.join(ending.output.split())[-300:]}")
        elif out.is_dir():
            wrong += differences(self.expected, self.command.reads(out))
            wrong += [f"left behind: {name}" for name in self.command.remains(out)]
        shutil.rmtree(out, ignore_errors=True)
        return Trial(point, first, ending.code, round(ending.seconds, 2), wrong)


class Unsynced:
    """What a power cut takes: the end of each file that was written since the file was last synced."""

    def __init__(self) -> None:
        self.synced: dict[str, int] = {}  # bytes of a file that are safe

    def see(self, operation: Operation) -> None:
        """An operation that is about to be done."""
        path, other = operation.path, operation.other
        if operation.kind == "fsync" and Path(path).is_file():
            self.synced[path] = Path(path).stat().st_size
        elif operation.kind in ("open-truncate", "truncate", "unlink"):
            self.synced.pop(path, None)
        elif operation.kind == "rename":
            for one in [one for one in self.synced if one == path or one.startswith(path + "/")]:
                self.synced[other + one[len(path) :]] = self.synced.pop(one)

    def lose(self, out: Path, copy: Path) -> bool:
        """Take it from a copy; whether there is anything."""
        lost = False
        for file in copy.rglob("*"):
            safe = self.synced.get(str(out / file.relative_to(copy)), 0)
            if file.is_file() and file.name != "log.txt" and file.stat().st_size > safe:
                os.truncate(file, safe)
                lost = True
        return lost


def kind_of_file(operation: Operation, out: Path) -> str:
    """Path of a file without what differs between records and processes."""
    text = operation.path.replace(str(out), "")
    text = re.sub(r"\.[0-9a-f]{8}-\d+-[0-9a-f]{8}-\d+\.tmp", ".PROCESS.tmp", text)
    text = re.sub(r"\.tmp\w{6}$", ".RANDOM", re.sub(r"[0-9a-f]{32}", "KEY", text))
    text = re.sub(r"(?<![0-9a-z])[0-9a-f]{16}", "KEY", text)
    return re.sub(r"(/runs/)[^/]+", r"\1RUN", text)


def trials(sweep: FaultSweep, fault: str, points: Sequence[Point]) -> Iterator[Trial]:
    """What `--fault` says, at each of some points."""
    if fault in ("kill", "power"):
        return sweep.killed(points, power_cut=fault == "power")
    if fault in ("full", "quota"):
        return sweep.failing(points, How.FULL_FROM, errno.ENOSPC if fault == "full" else errno.EDQUOT)
    if fault == "readonly":
        return sweep.failing(points, How.FAIL_FROM, errno.EROFS)
    return sweep.failing(points, How.FAIL_ONCE, getattr(errno, fault))


def main() -> int:
    """Run the trials; 0 if all ended well."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["run", "study"])
    parser.add_argument("--fault", default="kill", help="kill, power, full, quota, readonly, or a name of errno.")
    parser.add_argument("--draw", type=int, help="Only at so many operations, drawn by --seed.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="A pattern: what the operation is, or its file.")
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    shim.start_again()
    with tempfile.TemporaryDirectory() as temporary:
        home, start_s = Path(temporary).resolve(), time.monotonic()
        command = commands.named(given.command, home)
        commands.warm_up(command, home)
        sweep = FaultSweep(command, home)
        points = [one for one in sweep.points(amid=given.fault in ("kill", "power")) if re.search(given.only, str(one))]
        if given.fault in ("full", "quota"):
            points = [one for one in points if one.kind in TAKES_SPACE]
        if given.draw is not None and given.draw < len(points):
            drawn = sorted(random.Random(given.seed).sample(range(len(points)), given.draw))
            points = [points[place] for place in drawn]
        endings, well = Counter[str](), 0
        for trial in trials(sweep, given.fault, points):
            endings[str(trial.first)] += 1
            well += not trial.wrong
            if trial.wrong:
                print(f"{trial.point}:\n    " + "\n    ".join(trial.wrong[:8]), flush=True)
    print(
        f"{given.command}, {given.fault}: {len(sweep.operations)} operations, {endings.total()} trials, {well} equal "
        f"and clean in {time.monotonic() - start_s:.0f} s; exit codes of the disturbed: {dict(endings)}"
    )
    return 0 if well == endings.total() else 1


if __name__ == "__main__":
    sys.exit(main())
