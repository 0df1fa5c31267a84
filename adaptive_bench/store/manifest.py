"""A run's list of its own records, written when the run begins.

Whoever looks for a result asks this list and no key: where a result is does not depend on the code, the model and the
data that are here now. Whether it may be used again does, and that only a run that computes asks
(`runs.planning.plan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store import atomic
from adaptive_bench.store.digest import sealed
from adaptive_bench.store.files import read_file
from adaptive_bench.store.records import DialEvaluationRecord, Record
from adaptive_bench.store.runs import output_of
from adaptive_bench.store.schema import SCHEMA
from adaptive_bench.task import DocumentSplit

FILE = "manifest.json"
Variant = Literal["", "shuffled"]  # of an evaluation: the method, or its control of shuffled decisions


@dataclass(frozen=True)
class TrainingEntry:
    """One training of a run.

    Attributes:
        record: Name of its record.
        method: Its spec.
        target: Saving it is trained towards; `None` for a spec that trains towards none.
        only_target: Whether it is the only target of its spec.
        base: Name of the record of the training it starts from, if it starts from one.
    """

    record: str
    method: str
    seed: int
    target: float | None
    only_target: bool
    base: str | None

    def __str__(self) -> str:
        return f"train {self.method}{target_text(self.target, self.only_target)}, seed {self.seed}"


@dataclass(frozen=True)
class EvaluationEntry:
    """One method spec and seed on one task, over the range of the dial.

    Attributes:
        record: Its record below the folder of records.
        split: `test`, or `validation` for documents that choices are made on.
        metric: The headline metric of the task.
        levels: Savings to match at.
        variant: `shuffled` for the control of shuffled decisions; empty for the method itself.
    """

    record: str
    method: str
    task: str
    split: DocumentSplit
    metric: str
    levels: tuple[float, ...]
    variant: Variant = ""

    @property
    def training(self) -> str:
        """Name of the record of the training it evaluates."""
        return self.record.partition("/")[0]

    def to_json(self) -> dict[str, Any]:
        """Plain values; a variant is named where it is one."""
        return {name: value for name, value in asdict(self).items() if name != "variant" or value}


@dataclass(frozen=True)
class Manifest:
    """What a run consists of, in the order it is carried out, and where it is.

    Attributes:
        out: The output folder; records lie in its `records`.
    """

    out: Path
    trainings: tuple[TrainingEntry, ...]
    evaluations: tuple[EvaluationEntry, ...]

    def training_of(self, evaluation: EvaluationEntry) -> TrainingEntry:
        """The training an evaluation hangs on."""
        return next(one for one in self.trainings if one.record == evaluation.training)

    def record_of(self, evaluation: EvaluationEntry) -> DialEvaluationRecord:
        """State, log and measured points of an evaluation.

        Raises:
            EnvironmentProblem: It, or its training, is not what this list says of it.
        """
        training = self.training_of(evaluation)
        record = DialEvaluationRecord(self.out / "records" / evaluation.record)
        check_training(training, Record(self.out / "records" / training.record))
        check_evaluation(evaluation, record)
        return record

    def stands_in(self, folder: Path) -> bool:
        """Whether the folder of its run has this list."""
        file = folder / FILE
        return file.is_file() and file.read_bytes() == self._text.encode("utf-8")

    def write(self, folder: Path) -> None:
        """Put the list into the folder of its run."""
        atomic.update_text(folder / FILE, self._text)

    @cached_property
    def _text(self) -> str:
        about = {
            "schema": SCHEMA,
            "trainings": [asdict(one) for one in self.trainings],
            "evaluations": [one.to_json() for one in self.evaluations],
        }
        return sealed(atomic.json_text(about))


def read(folder: Path) -> Manifest | None:
    """The manifest of a run, wherever its folder lies by now; `None` where there is none.

    Raises:
        EnvironmentProblem: It is damaged.
    """
    if not (folder / FILE).is_file():
        return None
    about = read_file(folder / FILE)
    if about is None:
        raise EnvironmentProblem(
            f"A run's {FILE} stays as the run wrote it, but that in {str(folder)!r} changed since. Give the run's "
            f"command again: it writes a new one and computes nothing twice."
        )
    evaluations = tuple(_evaluation(values) for values in about["evaluations"])
    return Manifest(output_of(folder), tuple(TrainingEntry(**values) for values in about["trainings"]), evaluations)


def _evaluation(values: Mapping[str, Any]) -> EvaluationEntry:
    return EvaluationEntry(**{**values, "levels": tuple(values["levels"])})


def check_training(listed: TrainingEntry, record: Record) -> dict[str, Any]:
    """What a training's record says of itself, nothing if it cannot be read.

    Raises:
        EnvironmentProblem: It is another one than is listed.
    """
    said = _said(record)
    target = None if said.get("target") is None else said["target"].get("saving")
    _compare(record, said | {"target": target}, {key: getattr(listed, key) for key in ("method", "seed", "target")})
    return said


def check_evaluation(listed: EvaluationEntry, record: Record) -> dict[str, Any]:
    """As `check_training`, of an evaluation."""
    said = _said(record)
    names = ("method", "task", "split", "variant")
    _compare(record, {"split": "test", "variant": ""} | said, {key: getattr(listed, key) for key in names})
    return said


def _said(record: Record) -> dict[str, Any]:
    record.check_key()
    return record.read("config.json") or {}


def _compare(record: Record, said: Mapping[str, Any], listed: Mapping[str, Any]) -> None:
    different = [key for key, value in listed.items() if "method" in said and said.get(key) != value]
    if different:
        pairs = ", ".join(f"{key} {listed[key]!r} listed, {said.get(key)!r} recorded" for key in different)
        raise EnvironmentProblem(
            f"A run lists its records as what they say they are, but of {str(record.folder)!r} there is {pairs}. The "
            f"run's {FILE} was changed: give the run's command again, which writes a new one and computes nothing "
            f"twice."
        )


def target_text(target: float | None, only_target: bool) -> str:
    """The target of a training, where a reader needs it to tell trainings apart; else an empty text."""
    return "" if target is None or only_target else f" for {100 * target:.4g} %"
