"""Records on disk: one folder per trained cell, one folder in it per sweep of the dial.

<out>/records/<cell key>/
    record.json     sections: config, status, env, and of the training data, target, timing and cost
    train.jsonl     a line a step
    log.txt         where there was something to say
    checkpoint/     the trained model; before it is there, `resume/`
    eval/<task>-<sweep key>/
        record.json         config, status, env, dial, calibration, behaviour, and points: the measured ones by the
                            share of tokens they were asked to save, each with the bytes of its documents
        documents.jsonl     a line a document, point after point
    eval/<task>-shuffled-<sweep key>/       the same of the control of shuffled decisions, without behaviour

A `record.json` is replaced as a whole, by whoever holds the record. One that cannot be parsed counts as none: it is put
aside when the work begins again. Documents are appended before their point is listed; what lies behind those of the
last point was left by a process that was killed in between.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from adaptive_bench.errors import EnvironmentProblem, message_of
from adaptive_bench.progress import SilentReporter
from adaptive_bench.store import atomic, lock
from adaptive_bench.store.evaluations import Evaluation, Sample

FILE = "record.json"
DOCUMENTS = "documents.jsonl"
CHECKPOINT = "checkpoint"  # the folder of the trained model
State = Literal["planned", "running", "done", "failed", "partial"]
# `partial` is work that was stopped and can be resumed. A killed process leaves `running`, which is read as that.


class Record:
    """The folder of one piece of work, with its state and its log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, section: str) -> dict[str, Any] | None:
        """A section of the record, or `None` if it is not there, or the record cannot be parsed: then the work is not
        done. What is given back is shared and not to be changed.

        Raises:
            EnvironmentProblem: A newer version wrote it, or it may not be read.
        """
        values: dict[str, Any] | None = (_content(self.folder / FILE) or {}).get(section)
        return values

    def write(self, section: str, values: Mapping[str, Any]) -> None:
        """Put a section in its place, by whoever holds the record."""
        known = _content(self.folder / FILE) or {"schema": SCHEMA}
        atomic.write_json(self.folder / FILE, {**known, section: values})

    @property
    def is_damaged(self) -> bool:
        """Whether it cannot be parsed."""
        return (self.folder / FILE).is_file() and _content(self.folder / FILE) is None

    @property
    def state(self) -> State:
        """Where the work stands; `planned` before anything is written. What nobody is at does not run."""
        written: State = self._status()["state"]
        if written != "running" or lock.is_held(self.folder):
            return written
        return "done" if self.has_result else "partial"

    @property
    def has_result(self) -> bool:
        """Whether what the work is for is there, as far as the folder alone tells."""
        return (self.folder / CHECKPOINT).is_dir()

    @property
    def reason(self) -> str:
        """Why it failed, or an empty text."""
        return self._status()["reason"]

    @property
    def owner(self) -> lock.Owner | None:
        """Who is at it, if anybody."""
        return lock.owner(self.folder)

    def move(self, state: State, reason: str = "") -> None:
        """Go to another state."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.write("status", {"state": state, "since": now, "reason": reason})

    def mark_done(self) -> None:
        """The work is finished, whatever the last process that was at it had time to write and to remove."""
        lock.tidy(self.folder)
        if self._status()["state"] == "done" or lock.is_held(self.folder):
            return
        with lock.exclusive(self.folder, str(self.folder), SilentReporter()):
            atomic.remove(self.folder / "resume")
            self.move("done")

    def begin(self, config: Mapping[str, Any]) -> None:
        """Write what the work is and mark it running. A record that cannot be parsed is put aside, to be made again."""
        if self.is_damaged:
            aside = self.folder / f"{FILE}.damaged"
            with atomic.writable(aside):
                atomic.check()
                (self.folder / FILE).replace(aside)
            self.log(f"{FILE} could not be read and is now {FILE}.damaged; it is made again.")
        self.write("config", config)
        self.move("running")

    def fail(self, error: BaseException) -> None:
        """Keep the traceback in the log and the message in the status."""
        self.log("".join(traceback.format_exception(error)))
        self.move("failed", f"{type(error).__name__}: {message_of(error)}")

    def log(self, text: str) -> None:
        """Append to `log.txt`."""
        path = self.folder / "log.txt"
        with atomic.writable(path):
            atomic.check()
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as stream:
                stream.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text.rstrip()}\n")

    def _status(self) -> dict[str, Any]:
        return self.read("status") or {"state": "planned", "reason": ""}


class DialEvaluationRecord(Record):
    """The folder of one sweep: its measured points by the share of saved tokens they were asked for.

    Args:
        own: Of the points that lie there only those asked for these savings are this record's: a sweep may be shared
            with a run that asked for others. By default all are.
    """

    def __init__(self, folder: Path, own: Collection[float] | None = None) -> None:
        super().__init__(folder)
        self._own = None if own is None else {f"{saving:g}" for saving in own}

    @property
    def max_saved_tokens(self) -> float | None:
        """End of the method's dial; `None` until a model has been asked."""
        dial = self.read("dial")
        return None if dial is None else dial["max_saved_tokens"]

    def probe(self, saving: float) -> dict[str, float | None] | None:
        """What was saved of held-out text where so much was asked for, by axis: nothing where there is no such text,
        `None` where nobody has looked yet.
        """
        probes = self.read("probes")
        if probes is None or not probes["text"]:
            return None if probes is None else {}
        found: dict[str, float | None] | None = probes["saved"].get(f"{saving:g}")
        return found

    def add_probe(self, saving: float, saved: Mapping[str, float | None] | None) -> None:
        """Write what `probe` is to say.

        Args:
            saved: `None` where there is no held-out text.
        """
        known = {} if (probes := self.read("probes")) is None else probes["saved"]
        found = {} if saved is None else {f"{saving:g}": saved}
        self.write("probes", {"text": saved is not None, "saved": known | found})

    def savings(self) -> list[float]:
        """Shares of saved tokens that measured points were asked for, rising."""
        return sorted(float(text) for text in self._listed() if self._own is None or text in self._own)

    def point(self, saving: float) -> Evaluation | None:
        """A measured point, or `None`."""
        values = self._listed().get(f"{saving:g}")
        return None if values is None else Evaluation.from_json(values)

    def points(self) -> dict[float, Evaluation]:
        """Every measured point by what it was asked for, rising."""
        return {saving: found for saving in self.savings() if (found := self.point(saving)) is not None}

    def measuring_s(self, saving: float) -> float:
        """Seconds that a point took, calibration left out."""
        return float(self._listed()[f"{saving:g}"]["wall_s"])

    def samples(self, saving: float, most: int | None = None) -> list[Sample]:
        """The documents of a measured point, in their order; none where there is no such point. Prompts are known at
        saving 0.

        Args:
            most: How many, from the first; by default all.

        Raises:
            EnvironmentProblem: The file is damaged.
        """
        if (known := self._listed().get(f"{saving:g}")) is None:
            return []
        path, (start, end) = self.folder / DOCUMENTS, known["documents"]
        try:
            with path.open("rb") as stream:
                stream.seek(start)
                # Split at line feeds alone: what a model wrote may hold other characters that count as line ends.
                lines = stream.read(end - start).decode("utf-8").split("\n")[:-1][:most]
            found = json.loads(f"[{','.join(lines)}]")  # one call takes a third of the time of one for each line
            return [Sample.from_json(one) for one in found]
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise EnvironmentProblem(
                f"The documents of a measured point must be readable, but {str(path)!r} is not from byte {start} to "
                f"{end}: {type(error).__name__}, {message_of(error)}. Remove the folder {str(self.folder)!r} and give "
                f"the run's command again: it is measured anew."
            ) from error

    def add_point(self, saving: float, evaluation: Evaluation, samples: Sequence[Sample], *, wall_s: float) -> None:
        """Write a point. Its documents come first: where a point is listed, it is complete."""
        known, path = self._listed(), self.folder / DOCUMENTS
        start = max((one["documents"][1] for one in known.values()), default=0)
        texts = (sample.to_json(with_prompt=saving == 0) for sample in samples)
        content = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts).encode("utf-8")
        with atomic.writable(path), path.open("ab") as stream:
            atomic.check()
            stream.truncate(start)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        about = {"wall_s": wall_s, "documents": [start, start + len(content)], **evaluation.to_json()}
        self.write("points", {**known, f"{saving:g}": about})

    def _listed(self) -> dict[str, Any]:
        """The points that the record lists, but for those whose documents are not there."""
        points = self.read("points")
        if not points:
            return {}
        try:
            size_bytes = (self.folder / DOCUMENTS).stat().st_size
        except FileNotFoundError:
            size_bytes = 0
        return {text: values for text, values in points.items() if values["documents"][1] <= size_bytes}


def _content(path: Path) -> dict[str, Any] | None:
    """What a `record.json` says; `None` where there is none, or it cannot be parsed."""
    try:
        found = path.stat()
        return _parsed(path, (found.st_ino, found.st_size, found.st_mtime_ns))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise EnvironmentProblem(
            f"A record must be readable, but {str(path)!r} is not: {error.strerror or error}. Change its permissions, "
            "or choose another --out."
        ) from error


@lru_cache(maxsize=64)  # a section is read at a time, and a record that says what 20 points counted has 300 kB
def _parsed(path: Path, stamp: tuple[int, ...]) -> dict[str, Any] | None:
    """As `_content`, of a file as it was at some time."""
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    check_schema(values, path)
    return values


SCHEMA = 3  # 2 had a file for each section of a record


def check_schema(values: Mapping[str, Any], path: Path | str) -> None:
    """Refuse what a newer version wrote. Files without a version are as old as the first one.

    Raises:
        EnvironmentProblem: It did.
    """
    if (found := values.get("schema", SCHEMA)) > SCHEMA:
        raise EnvironmentProblem(
            f"This version of adaptive-bench reads what is written in schema {SCHEMA} or before, got schema {found!r} "
            f"in {str(path)!r}. Install the version that wrote it, or choose another --out."
        )
