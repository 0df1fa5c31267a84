"""Who works on a record: every attempt takes it with a number, and the newest one alone can write into it.

<record>/.attempts/
    7.json      who made the seventh attempt: host, process, job; made once, never changed, never removed
    7.4c1d09aa/ exists while that attempt may write: its files come about here and are renamed out (`atomic.fenced`);
                its `claim.json` says what `7.json` is about to say, should that be cut off

To take a record over is to make a folder, claim the next number with it (an exclusive creation), and remove all folders
of other attempts up to that number. An older attempt may be alive, on a machine that cannot be reached: its next rename
fails. Nothing here needs a working `flock`, and no clock of one machine is compared with another's.

A folder is there before its claim, so a claim without one is an attempt that has ended, never one about to begin; and
its name is drawn, so that nobody who lost the race for a number can bring back the folder of the one who won it. Of two
attempts that claim at once, the later one removes the folder of the earlier one, or the earlier one sees the later
claim and gives way.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from adaptive_bench.errors import Superseded
from adaptive_bench.progress import Reporter
from adaptive_bench.store import atomic
from adaptive_bench.store.holder import Holder

FOLDER = ".attempts"
BEAT_S = 10.0  # between two signs of life of an attempt
SILENCE_S = 120.0  # without one an attempt on another machine counts as dead; caches of network folders last up to 60 s
_LOOK_S = 0.5  # between two looks at an attempt that is waited for
_ERASE_TRIES = 50
_BEAT, _CLAIM = "beat", "claim.json"
_under_way: set[Path] = set()  # folders of this process's attempts; one that is not among them was left by an error


@dataclass(frozen=True)
class Attempt:
    """One attempt at the work of a record.

    Attributes:
        number: From 1; a larger one is a newer attempt.
        holder: Who makes it; `None` if its claim cannot be read.
        folder: Exists while the attempt may write.
    """

    number: int
    holder: Holder | None
    folder: Path

    @property
    def is_open(self) -> bool:
        """Whether it has neither ended nor been taken over."""
        return self.folder.is_dir()

    @property
    def is_over(self) -> bool | None:
        """Whether it has ended, as far as this machine can tell: `None` if it cannot."""
        if not self.is_open:
            return True
        if self.holder is None:
            return None
        return self.folder.resolve() not in _under_way if self.holder.is_here else self.holder.is_gone


def newest(record: Path) -> Attempt | None:
    """The newest attempt at a record, or `None` before the first."""
    home = record / FOLDER
    number = _largest(home)
    if not number:
        return None
    claim = home / f"{number}.json"
    holder = Holder.read(claim)
    if holder is not None:
        return Attempt(number, holder, _folder_of(claim))
    # Its claim is just being written, or whoever wrote it was cut off: its folder says the same. Of several with that
    # number, where others lost the race, one that may be alive counts.
    folders = [folder for folder in _folders(home) if _number(folder) == number]
    found = [Attempt(number, Holder.read(folder / _CLAIM), folder) for folder in folders]
    return min(found, key=lambda one: bool(one.is_over), default=Attempt(number, None, home / str(number)))


def is_held(record: Path) -> bool:
    """Whether somebody is at it, as far as can be told without waiting."""
    found = newest(record)
    return found is not None and not found.is_over


@contextmanager
def exclusive(record: Path, what: str, reporter: Reporter, *, root: Path | None = None) -> Iterator[Attempt]:
    """Take a record as soon as nobody is at it any more; in the block its files are written as this attempt.

    Attempts that are alive are waited for. One is not waited for whose process is gone, whose machine has started
    anew, that has given no sign of life for `SILENCE_S`, or that is an earlier start of the same job of a scheduler.

    Args:
        root: Folder the block may write in; by default the record.

    Raises:
        Superseded: A later start of the same job has been here; or in the block, once a newer attempt took over.
        EnvironmentProblem: The folder cannot be written.
    """
    with atomic.writable(record):
        (record / FOLDER).mkdir(parents=True, exist_ok=True)
        attempt = _take(record, what, reporter)
    stop = threading.Event()
    heartbeat = threading.Thread(target=_heartbeat, args=(attempt.folder, stop), daemon=True)
    heartbeat.start()
    try:
        with atomic.fenced(root or record, attempt.folder):
            yield attempt
    finally:
        stop.set()
        heartbeat.join()
        with suppress(OSError):  # an error of the block is the one to tell; `tidy` removes what is left
            _end_own(attempt.folder)


def tidy(record: Path) -> None:
    """Remove what attempts left behind whose processes are gone; where nothing can be written it stays."""
    home = record / FOLDER
    if home.is_dir() and (folders := _folders(home)) and not is_held(record):
        with suppress(OSError):
            for folder in folders:
                _end(folder)


def _take(record: Path, what: str, reporter: Reporter) -> Attempt:
    me, watch, told = Holder.here(), Watch(), False
    while True:
        before = newest(record)
        if before is not None and before.holder is not None and before.holder.restarts(me):
            raise Superseded(
                f"A job that was started again leaves its work to the newer start, but this is start {me.restart} of "
                f"{me.job} and start {before.holder.restart} has been at {str(record)!r}. Nothing is to be done."
            )
        follows = before is not None and before.holder is not None and me.restarts(before.holder)
        if before is None or follows or watch.is_over(before):
            mine = _claim(record / FOLDER, before.number + 1 if before else 1, me)
            if mine is not None:
                return mine
            continue
        if not told:
            reporter.line(f"{what}: {before.holder or 'another process'} is running it, waiting for its result")
            told = True
        time.sleep(_LOOK_S)


def _claim(home: Path, number: int, me: Holder) -> Attempt | None:
    """Make an attempt with this number, unless somebody else has or a newer one is there."""
    folder = home / f"{number}.{uuid4().hex[:8]}"
    folder.mkdir()
    _under_way.add(folder.resolve())  # before the claim, from which on others judge it
    text = json.dumps({**me.to_json(), "folder": folder.name}, indent=2) + "\n"
    try:
        for file in (folder / _CLAIM, home / f"{number}.json"):
            with file.open("x", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
        for other in _folders(home):
            if other != folder and _number(other) <= number:
                _end(other)
    except OSError as error:
        _under_way.discard(folder.resolve())  # nobody waits for an attempt that was not begun
        shutil.rmtree(folder, ignore_errors=True)
        # Somebody else has the number, and may have removed the folder by now.
        if isinstance(error, FileExistsError | FileNotFoundError):
            return None
        raise
    if _largest(home) > number:
        _end_own(folder)
        return None
    return Attempt(number, me, folder)


def _end_own(folder: Path) -> None:
    try:
        _end(folder)
    finally:
        _under_way.discard(folder.resolve())


class Watch:
    """Waits for a sign of life on the clock of this process alone, which runs evenly whatever clocks are set to."""

    def __init__(self) -> None:
        self._seen: tuple[int, str] | None = None
        self._since_s = 0.0

    def is_over(self, attempt: Attempt) -> bool:
        """Whether an attempt has ended, is known to be dead, or has been silent for too long."""
        known = attempt.is_over
        if known is not None:
            return known
        try:
            beat = (attempt.folder / _BEAT).read_text(encoding="utf-8")
        except OSError:
            beat = ""
        if self._seen != (attempt.number, beat):
            self._seen, self._since_s = (attempt.number, beat), time.monotonic()
        return time.monotonic() - self._since_s > SILENCE_S


def _heartbeat(folder: Path, stop: threading.Event) -> None:
    count = 0
    while not stop.is_set():
        count += 1
        try:
            (folder / _BEAT).write_text(str(count), encoding="utf-8")
        except OSError:
            if not folder.is_dir():
                return
        stop.wait(BEAT_S)


def _largest(home: Path) -> int:
    names = (path.stem for path in home.glob("*.json"))
    return max((int(name) for name in names if name.isdigit()), default=0)


def _folder_of(claim: Path) -> Path:
    """The folder that a claim names; one that nobody has if it names none."""
    try:
        return claim.parent / json.loads(claim.read_text(encoding="utf-8"))["folder"]
    except (OSError, ValueError, KeyError, TypeError):
        return claim.with_suffix("")


def _number(folder: Path) -> int:
    """Whose folder it is; 0 for what is being removed."""
    name = folder.name.partition(".")[0]
    return int(name) if name.isdigit() else 0


def _folders(home: Path) -> list[Path]:
    return [path for path in home.iterdir() if path.is_dir()]


def _end(folder: Path) -> None:
    """Remove the folder of an attempt, so that nothing can be renamed out of it.

    It first gets another name: no path leads to it. Then it is removed, for the sake of network file systems, whose
    clients may hold on to the folder itself; files that such a client adds meanwhile are removed as well.
    """
    aside = folder.with_name(f".{folder.name}.{uuid4().hex}")
    try:
        folder.rename(aside)
    except OSError:
        if folder.is_dir():
            raise
        return
    for _ in range(_ERASE_TRIES):
        shutil.rmtree(aside, ignore_errors=True)
        if not aside.exists():
            return
        time.sleep(0.02)
