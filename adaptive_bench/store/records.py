"""Records on disk: one folder per training, with one folder in it per sweep of the dial.

<out>/records/<cell key>/
    record.json     sections config, status and env; for a training also data, target, timing and cost
    train.jsonl     one line per step
    log.txt         if there was anything to log
    checkpoint/     the trained model; `resume/` until the training is done
    eval/<task>-<sweep key>/
        record.json         sections config, status, env, dial, probes, calibration and points: the measured
                            points by the share of tokens they were asked to save, each with the byte range of its
                            documents
        documents.jsonl     one line per document, point after point
    eval/<task>-shuffled-<sweep key>/       the same for the control of shuffled decisions

A `record.json` is always replaced as a whole, by the process that holds the record. Documents are appended before their
point is listed; any bytes behind the documents of the last point were left by a process that was killed in between.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of
from adaptive_bench.progress import SilentReporter
from adaptive_bench.store import atomic, lock
from adaptive_bench.store.evaluation import Evaluation, Sample
from adaptive_bench.store.keys import key_of
from adaptive_bench.store.measured import TimeCurve

FILE = "record.json"
DOCUMENTS = "documents.jsonl"
TRAINING_LOG = "train.jsonl"
CHECKPOINT = "checkpoint"  # the folder of the trained model
State = Literal["planned", "running", "done", "failed", "partial"]
# `partial` is work that was stopped and can be resumed. A killed process leaves `running`, which is read as `partial`.


class Record:
    """The folder of one piece of work, with its state and its log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, section: str) -> dict[str, Any] | None:
        """Return a section of the record; `None` if it is missing. Callers share it and must not change it.

        Raises:
            EnvironmentProblem: The record cannot be read, or a newer version wrote it.
        """
        values: dict[str, Any] | None = _content(self.folder / FILE).get(section)
        return values

    def write(self, section: str, values: Mapping[str, Any]) -> None:
        """Write a section of the record; only the process that holds the record may do this."""
        atomic.write_json(self.folder / FILE, {"schema": SCHEMA, **_content(self.folder / FILE), section: values})

    @property
    def state(self) -> State:
        """State of the work; `planned` before anything is written. Work that no process holds is never `running`."""
        written: State = self._status()["state"]
        if written != "running" or lock.is_held(self.folder):
            return written
        # A training may have been killed between storing its checkpoint and saying so.
        return "done" if self.has_result else "partial"

    @property
    def has_result(self) -> bool:
        """Whether the checkpoint of a training is there."""
        return (self.folder / CHECKPOINT).is_dir()

    @property
    def reason(self) -> str:
        """Why the work failed, or an empty text."""
        return self._status()["reason"]

    def move(self, state: State, reason: str = "") -> None:
        """Write a new state, with the current time."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.write("status", {"state": state, "since": now, "reason": reason})

    def mark_done(self) -> None:
        """Mark finished work as done and remove what is left of it, if the last process that worked on it was killed
        before it could do so, and if the folder can be written.
        """
        is_done = self._status()["state"] == "done"  # as written: `state` already counts a stored checkpoint as done
        # Even if it is done: the kill may have come later.
        is_left = any((self.folder / name).exists() for name in lock.FILES)
        if (is_done and not is_left) or lock.is_held(self.folder):
            return
        with suppress(AdaptiveBenchError), lock.exclusive(self.folder, str(self.folder), SilentReporter()):
            atomic.remove(self.folder / "resume")
            if not is_done:
                self.move("done")

    def begin(self, config: Mapping[str, Any]) -> None:
        """Write the work's config and mark it running."""
        self.write("config", config)
        self.move("running")

    def fail(self, error: BaseException) -> None:
        """Mark the work as failed, with the traceback in the log and the message in the status."""
        self.log("".join(traceback.format_exception(error)))
        self.move("failed", f"{type(error).__name__}: {message_of(error)}")

    def losses(self) -> list[tuple[int, float]]:
        """Return the number and the loss of every logged step of a training."""
        log, found = self.folder / TRAINING_LOG, []
        for line in log.read_text(encoding="utf-8").splitlines() if log.is_file() else ():
            with suppress(ValueError):  # a line that a killed process left half written
                step = json.loads(line)
                found.append((step["step"], step["loss"]))
        return found

    def log(self, text: str) -> None:
        """Append to `log.txt`."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        atomic.append_text(self.folder / "log.txt", f"{now} {text.rstrip()}\n")

    def _status(self) -> dict[str, Any]:
        return self.read("status") or {"state": "planned", "reason": ""}


class DialEvaluationRecord(Record):
    """The folder of one sweep, with its measured points by the share of saved tokens they were asked for.

    Args:
        own: Savings of the points to show, by default all; others belong to another run that shares the sweep.
    """

    def __init__(self, folder: Path, own: Collection[float] | None = None) -> None:
        super().__init__(folder)
        self._own = None if own is None else {f"{saving:g}" for saving in own}  # as the keys in the record

    @property
    def max_saved_tokens(self) -> float | None:
        """Largest share of tokens that the method's dial can save; `None` until a model has been asked."""
        dial = self.read("dial")
        return None if dial is None else dial["max_saved_tokens"]

    def probe(self, saving: float) -> dict[str, float | None] | None:
        """Return the savings by axis that were measured on held-out text at a requested saving. They are empty if there
        is no such text, and `None` if they have not been measured yet.
        """
        probes = self.read("probes")
        if probes is None or not probes["text"]:
            return None if probes is None else {}
        found: dict[str, float | None] | None = probes["saved"].get(f"{saving:g}")
        return found

    def add_probe(self, saving: float, saved: Mapping[str, float | None] | None) -> None:
        """Write the savings by axis that `probe` returns; `None` if there is no held-out text."""
        known = {} if (probes := self.read("probes")) is None else probes["saved"]
        found = {} if saved is None else {f"{saving:g}": saved}
        self.write("probes", {"text": saved is not None, "saved": known | found})

    def savings(self) -> list[float]:
        """Return the shares of saved tokens that the measured points were asked for, rising."""
        return sorted(float(text) for text in self._listed() if self._own is None or text in self._own)

    def point(self, saving: float) -> Evaluation | None:
        """Return the point measured at a requested saving, or `None`."""
        values = self._listed().get(f"{saving:g}")
        return None if values is None else Evaluation.from_json(values)

    def points(self) -> dict[float, Evaluation]:
        """Return every measured point by its requested saving, rising."""
        return {saving: found for saving in self.savings() if (found := self.point(saving)) is not None}

    def measuring_s(self, saving: float) -> float:
        """Return the seconds that measuring a point took, without calibration."""
        return float(self._listed()[f"{saving:g}"]["wall_s"])

    def samples(self, saving: float, most: int | None = None) -> list[Sample]:
        """Return the documents of a measured point, in order, or the first `most`; empty if there is no such point.
        Only the point at saving 0 has prompts.
        """
        if (known := self._listed().get(f"{saving:g}")) is None:
            return []
        path, (start, end) = self.folder / DOCUMENTS, known["documents"]
        try:
            with path.open("rb") as stream:
                stream.seek(start)
                # Split only at line feeds, since `splitlines` also splits at other characters that a model may write.
                lines = stream.read(end - start).decode("utf-8").split("\n")[:-1][:most]
            found = json.loads(f"[{','.join(lines)}]")  # one call takes a third of the time of one for each line
            return [Sample.from_json(one) for one in found]
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from error

    def add_point(self, saving: float, evaluation: Evaluation, samples: Sequence[Sample], *, wall_s: float) -> None:
        """Write a point. Its documents are written first, so that a listed point is always complete."""
        known, path = self._listed(), self.folder / DOCUMENTS
        start = max((one["documents"][1] for one in known.values()), default=0)
        texts = (sample.to_json(with_prompt=saving == 0) for sample in samples)
        content = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts).encode("utf-8")
        with atomic.writable(path), path.open("ab") as stream:
            atomic.check()
            # Cuts off what a killed process appended; in append mode the write below then begins there.
            stream.truncate(start)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())  # before the point is listed
        about = {"wall_s": wall_s, "documents": [start, start + len(content)], **evaluation.to_json()}
        self.write("points", {**known, f"{saving:g}": about})

    def _listed(self) -> dict[str, Any]:
        """Return the points that the record lists and whose documents are there."""
        points = self.read("points")
        if not points:
            return {}
        try:
            size_bytes = (self.folder / DOCUMENTS).stat().st_size
        except FileNotFoundError:
            # The file was lost or not copied: its points are measured again.
            size_bytes = 0
        return {text: values for text, values in points.items() if values["documents"][1] <= size_bytes}


def _content(path: Path) -> dict[str, Any]:
    """Return the content of a `record.json`; empty if the file does not exist."""
    try:
        found = path.stat()
        return _parsed(path, (found.st_ino, found.st_size, found.st_mtime_ns))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"A record must be readable, but {str(path)!r} is not: {message_of(error)}. Change its permissions; or remove "
        f"the folder {str(path.parent)!r} and give the run's command again: it is made anew."
    )


@lru_cache(maxsize=64)  # sections are read one at a time, and a record with the counts of 20 points has 300 kB
def _parsed(path: Path, stamp: tuple[int, ...]) -> dict[str, Any]:
    """Do as `_content`; the stamp (inode, size and time of the file) makes the cache miss when the file changes."""
    values: dict[str, Any] = json.loads(path.read_bytes())
    if not isinstance(values, dict):
        raise ValueError("it has no sections")
    check_schema(values, path)
    return values


SCHEMA = 3  # in schema 2 each section of a record was a file


def check_schema(values: Mapping[str, Any], path: Path | str) -> None:
    """Refuse a file that a newer version wrote. A file without a schema number is accepted."""
    if (found := values.get("schema", SCHEMA)) > SCHEMA:
        raise EnvironmentProblem(
            f"This version of adaptive-bench reads files of schema {SCHEMA} or earlier, got schema {found!r} in "
            f"{str(path)!r}. Install the version that wrote it, or choose another --out."
        )


# Timings: `<out>/time/<key>.json` for each method spec, model and setting. A setting is the circumstances of a timing:
# device, threads, precision, batch, prompt tokens and new tokens. Times of different settings are never compared.

TimeCurves = Mapping[str, Mapping[str, TimeCurve]]  # by setting in words, then by method spec


def setting_label(setting: Mapping[str, Any]) -> str:
    """Return a setting in words, the device last: `batch 8, 128+128 tokens, 1 thread, <cpu>`."""
    parts = [f"batch {setting['batch']}", f"{setting['prompt']}+{setting['new']} tokens"]
    if setting["precision"] != "fp32":
        parts.append(setting["precision"])
    if setting["device"] == "cpu":
        parts.append(f"{setting['threads']} thread{'' if setting['threads'] == 1 else 's'}")
    return ", ".join([*parts, setting["device_name"]])


def timing_path(out: Path, content: Mapping[str, Any]) -> Path:
    """Return the path of the timing that depends on `content`."""
    return out / "time" / f"{key_of(content)}.json"


def write_timing(out: Path, content: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Write a timing: `content` is what it depends on, `result` what was measured."""
    timing = {**content, **result}
    atomic.write_json(timing_path(out, content), timing)
    return timing


def read_timing(path: Path) -> dict[str, Any] | None:
    """Read a timing; `None` if it does not exist."""
    if not path.is_file():
        return None
    timing: dict[str, Any] = json.loads(path.read_bytes())
    check_schema(timing, path)
    return timing


def find_curves(
    out: Path, fingerprint: str, fits: Callable[[Mapping[str, Any]], bool] = lambda _: True
) -> dict[str, dict[str, TimeCurve]]:
    """Return the time curves of every method spec that was timed on a model, by setting; the newest timing counts.

    Args:
        fits: Says of each timing of the model whether it was made with the code that is installed now.
    """
    found = [read_timing(path) for path in sorted((out / "time").glob("*.json"))]
    ours = [one for one in found if one is not None and one["model_fingerprint"] == fingerprint and fits(one)]
    curves: dict[str, dict[str, TimeCurve]] = {}
    for timing in sorted(ours, key=lambda one: str(one["date"])):  # a newer one replaces an older one
        points = ((float(one["saved"]["tokens"]), float(one["saved_time"]["total"])) for one in timing["points"])
        per_s = timing.get("plain", {}).get("tokens_per_s")
        curve = TimeCurve.of(points, 1000 / float(per_s) if per_s else None)  # ms per token
        curves.setdefault(setting_label(timing["setting"]), {})[timing["method"]] = curve
    return dict(sorted(curves.items()))


def choose_curves(curves: TimeCurves, wanted: str | None) -> TimeCurves:
    """Return the settings whose label contains a text, a `UsageError` if none does; without a text, all of them."""
    found = {setting: by_spec for setting, by_spec in curves.items() if wanted is None or wanted in setting}
    if wanted is not None and not found:
        there = "; ".join(curves) or "none"
        raise UsageError(f"--timing is part of the name of a setting, got {wanted!r}. There is: {there}.")
    return found
