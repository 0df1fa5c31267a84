"""Records on disk: one folder per trained cell, one folder in it per sweep of the dial. Complete files or none.

<out>/records/<cell key>/
    config.json env.json status.json log.txt
    data.json train.jsonl timing.json checkpoint/     written by the training
    eval/<task>-<sweep key>/
        config.json status.json log.txt dial.json calibration.json behaviour.json
        0.15.json 0.15.samples.jsonl                  one measured point: the share of tokens it was asked to save
    eval/<task>-shuffled-<sweep key>/                 the same of the control of shuffled decisions, without behaviour

In a run of many records those of a finished one are folded into a `result.json` (see `files`).
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from adaptive_bench.errors import EnvironmentProblem, message_of
from adaptive_bench.store import atomic, lock
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.store.files import DOCUMENTS, POINT, Files, files_of, fold, forget
from adaptive_bench.store.keys import key_of
from adaptive_bench.store.schema import SCHEMA

CHECKPOINT = "checkpoint"  # the folder of the trained model
State = Literal["planned", "running", "done", "failed", "partial"]
# `partial` is work that was stopped and can be resumed. A killed process leaves `running`, which is read as that.
_NEXT: Mapping[State, set[State]] = {
    "planned": {"running"},
    "running": {"running", "done", "failed", "partial"},
    "failed": {"running"},
    "partial": {"running"},
    "done": {"running"},
}


class Record:
    """The folder of one piece of work, with its state and its log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begun = False

    @property
    def files(self) -> Files:
        """What is in the folder now."""
        return files_of(self.folder)

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
    def holder(self) -> lock.Owner | None:
        """Who is at it, if anybody."""
        return lock.owner(self.folder)

    def move(self, state: State, reason: str = "") -> None:
        """Go to another state.

        Raises:
            ValueError: The work cannot get there from where it is: a defect of the caller.
            EnvironmentProblem: The record is gone.
        """
        before = self._status()["state"]
        if self._begun and not (self.folder / "config.json").is_file():
            raise EnvironmentProblem(
                f"The folder of a record must stay while work goes on, but {str(self.folder)!r} was removed or "
                "emptied. What was done there is lost; give the same command again."
            )
        if state not in _NEXT[before]:
            raise ValueError(f"A record cannot go from {before} to {state} ({self.folder}).")
        self._write(state, reason)

    def mark_done(self) -> None:
        """The work is finished, whatever the last process that was at it had time to write and to remove."""
        lock.tidy(self.folder)
        if self._status()["state"] != "done" and not lock.is_held(self.folder):
            atomic.remove(self.folder / "resume")
            self._write("done")

    def _write(self, state: State, reason: str = "") -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        status = {"state": state, "since": now, "reason": reason}
        self.write("status.json", status)

    def begin(self, config: Mapping[str, Any]) -> None:
        """Write what the work is and mark it running. What is damaged is put aside, to be made again."""
        for name in self.damaged():
            atomic.move(self.folder / name, self.folder / f"{name}.damaged")
            self.log(f"{name} could not be read and is now {name}.damaged; it is made again.")
        self.write("config.json", config)
        self.move("running")
        self._begun = True

    def fail(self, error: BaseException) -> None:
        """Keep the traceback in the log and the message in the status; of a record that is gone nothing."""
        if self._begun and not (self.folder / "config.json").is_file():
            return
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

    def write(self, name: str, values: Mapping[str, Any]) -> None:
        """A JSON file of the record, with the version of its form and a digest of what it says."""
        # What a record is named after is its `config.json`; every other file says to which record it belongs.
        belongs = {} if name == "config.json" else {"record": self.folder.name}
        forget(self.folder)
        atomic.write_sealed(self.folder / name, {"schema": SCHEMA, **belongs, **values})

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the record, or `None` if it is not there or damaged: then the work is not done.

        Raises:
            EnvironmentProblem: A newer version wrote it, it may not be read, or it is of another record.
        """
        values = self.files.read(name)
        if values is None or "record" not in values:
            return values
        if values["record"] != self.folder.name:
            raise EnvironmentProblem(
                f"A file belongs to one record, but {str(self.folder / name)!r} was written for {values['record']!r}. "
                f"Give the folder that name back if it was renamed; else remove the file, of a measured point its "
                f"documents as well, and give the same command again."
            )
        return {key: value for key, value in values.items() if key != "record"}

    def fold(self) -> None:
        """Put what the finished work left behind into one file."""
        fold(self.folder)

    def point_files(self) -> list[str]:
        """Names of the files of measured points."""
        return [name for name in self.files.names() if POINT.fullmatch(name)]

    def check_key(self, content: Mapping[str, Any] | None = None) -> None:
        """Refuse a record that is not the one its name says: it was moved or copied here, or says something else.

        Args:
            content: What has the name as its key, where that is known; if the record says so, no key is worked out.

        Raises:
            EnvironmentProblem: What its `config.json` says has another key.
        """
        said = self.read("config.json")
        if said is None:  # nothing yet, or damaged, which is told where a table is made
            return
        plain = {name: value for name, value in said.items() if name != "schema"}
        if content is not None and content in (said, plain):
            return
        # The version is part of the key of a training and not of that of an evaluation, which names its training.
        forms = (plain, said) if "cell" in said else (said, plain)
        if not any(self.folder.name.rpartition("-")[2] == key_of(one) for one in forms):
            raise EnvironmentProblem(
                f"The name of a record is the key of what it says of itself, but config.json in {str(self.folder)!r} "
                f"is of another one ({said.get('method')!r}, seed {said.get('seed')!r}, task {said.get('task')!r}): "
                f"the folder was moved or its file changed. Remove the folder and give the same command again."
            )

    def damaged(self) -> list[str]:
        """Names of the JSON files that cannot be read, or say something else than was written."""
        return self.files.damaged()

    def _status(self) -> dict[str, Any]:
        return self.read("status.json") or {"state": "planned", "reason": ""}


class DialEvaluationRecord(Record):
    """The folder of one sweep: its measured points by the share of saved tokens they were asked for.

    Args:
        own: Names of files: of the points that lie there, only those among them are this record's. A sweep may be
            shared with a run that asked for others. By default all are.
    """

    def __init__(self, folder: Path, own: Collection[str] | None = None) -> None:
        super().__init__(folder)
        self._own = own

    @property
    def max_saved_tokens(self) -> float | None:
        """End of the method's dial; `None` until a model has been asked."""
        dial = self.read("dial.json")
        return None if dial is None else dial["max_saved_tokens"]

    def point(self, saving: float) -> Evaluation | None:
        """A measured point, or `None`; see `read`.

        Raises:
            EnvironmentProblem: As `read`, or the point was asked for another saving.
        """
        name = f"{saving:g}.json"
        values = self.read(name)
        if values is None:
            return None
        if (asked := values.get("asked", saving)) != saving:  # of earlier versions it is not known
            raise EnvironmentProblem(
                f"A measured point is named after the share of saved tokens it was asked for, but "
                f"{str(self.folder / name)!r} was asked for {asked:g}. Remove it with its documents and give the run's "
                f"command again: it measures this point anew."
            )
        return Evaluation.from_json(values, f"{self.folder}/{name}")

    def measured(self, saving: float) -> Evaluation:
        """A point of `savings`.

        Raises:
            EnvironmentProblem: As `point`, or it is damaged.
        """
        found = self.point(saving)
        if found is None:
            raise EnvironmentProblem(
                f"A measured point stays as it was written, but {str(self.folder / f'{saving:g}.json')!r} changed "
                f"since. Give the run's command again: it measures this point anew."
            )
        return found

    def savings(self) -> list[float]:
        """Shares of saved tokens that measured points were asked for, rising."""
        names = set(self.files.names())
        names &= names if self._own is None else set(self._own)
        asked = (found[1] for name in names if (found := POINT.fullmatch(name)) is not None)
        return sorted(float(text) for text in asked if f"{text}{DOCUMENTS}" in names)

    def samples(self, saving: float) -> list[Sample]:
        """The documents of a measured point, in their order; none where there is no such point. Prompts are known at
        saving 0.

        Raises:
            EnvironmentProblem: The file is damaged.
        """
        path = self.folder / f"{saving:g}{DOCUMENTS}"
        if (content := self.files.content(path.name)) is None:
            return []
        try:
            # Split at line feeds alone: what a model wrote may hold other characters that count as line ends.
            known = (self.read(f"{saving:g}.json") or {}).get("samples_sha256")
            if known != hashlib.sha256(content).hexdigest():
                raise ValueError("its content changed since it was written")
            lines = [line for line in content.decode("utf-8").split("\n") if line]
            found = json.loads(f"[{','.join(lines)}]")  # one call takes a third of the time of one for each line
            if len(found) != len(lines):
                raise ValueError("a line is a document")
            return [Sample.from_json(one) for one in found]
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise EnvironmentProblem(
                f"The samples of a measured point must be readable, got {type(error).__name__} in {path}: {error}. "
                f"Delete {path.name} and its {saving:g}.json and give the run's command again."
            ) from error

    def add_point(self, saving: float, evaluation: Evaluation, samples: Sequence[Sample], *, wall_s: float) -> None:
        """Write a point. Its samples come first: where there is a point, it is complete."""
        texts = (sample.to_json(with_prompt=saving == 0) for sample in samples)
        lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        forget(self.folder)
        atomic.write_text(self.folder / f"{saving:g}{DOCUMENTS}", lines)
        digest = hashlib.sha256(lines.encode("utf-8")).hexdigest()
        about: dict[str, Any] = {"asked": saving, "samples_sha256": digest, "wall_s": wall_s}
        self.write(f"{saving:g}.json", about | evaluation.to_json())
