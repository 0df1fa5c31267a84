"""The manifest: a run's list of its records, written when the run begins and completed with its points at the end.

Results are looked up in this list and not by key, so that they are found whatever code, model and data are installed
now. Only a run that computes asks by key, since whether a result may be used again does depend on these
(`runs.run_plan`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.records import CHECKPOINT, SCHEMA, DialEvaluationRecord, Record, check_schema
from adaptive_bench.store.runs import DEFAULT_OUT, check_run, find_run, read_json, unusable
from adaptive_bench.task import DocumentSplit

FILE = "manifest.json"
Variant = Literal["", "shuffled"]  # an evaluation is of the method itself, or of its control of shuffled decisions


@dataclass(frozen=True)
class TrainingEntry:
    """One training of a run.

    Attributes:
        record: Name of its record.
        method: The method's spec.
        target: Saving that it is trained towards; `None` if its method trains towards none.
        only_target: Whether the spec has no other target in this run.
        base: Name of the record of the training that it starts from, if any.
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
        record: Path of its record below the folder of records.
        split: `test`, or `validation` for documents that choices are made on.
        metric: The headline metric of the task.
        levels: Savings to match at.
        variant: `shuffled` for the control of shuffled decisions; empty for the method itself.
        asked: Savings that the run's points were asked for, once all of them are measured; empty before. The record may
            hold further points.
    """

    record: str
    method: str
    task: str
    split: DocumentSplit
    metric: str
    levels: tuple[float, ...]
    variant: Variant = ""
    asked: tuple[float, ...] = ()

    @property
    def training(self) -> str:
        """Name of the record of the training that this evaluates."""
        return self.record.partition("/")[0]


@dataclass(frozen=True)
class Manifest:
    """The trainings and evaluations of a run, in the order in which they are carried out.

    Attributes:
        out: The output folder; the records lie in its subfolder `records`.
    """

    out: Path
    trainings: tuple[TrainingEntry, ...]
    evaluations: tuple[EvaluationEntry, ...]

    @property
    def records(self) -> list[str]:
        """Every record as a path below the folder of records, each training before its evaluations."""
        return [*(one.record for one in self.trainings), *(one.record for one in self.evaluations)]

    def training_of(self, evaluation: EvaluationEntry) -> TrainingEntry:
        """Return the training that an evaluation evaluates."""
        return next(one for one in self.trainings if one.record == evaluation.training)

    def record_of(self, evaluation: EvaluationEntry) -> DialEvaluationRecord:
        """Return the record of an evaluation; once it is finished, with only the points that the run asked for.

        Raises:
            EnvironmentProblem: There is no folder of records for the run.
        """
        return DialEvaluationRecord(self.records_home() / evaluation.record, evaluation.asked or None)

    def records_home(self) -> Path:
        """Return the folder of records.

        Raises:
            EnvironmentProblem: There is none: the run was copied alone, or its output folder was moved.
        """
        home = self.out / "records"
        if not home.is_dir():
            raise EnvironmentProblem(
                f"A run is read with its records, but there is no folder {str(home)!r}. Put it back; or move the "
                f"run's folder to where its records lie, into the folder `runs` beside `records`."
            )
        return home

    def unfinished(self, evaluations: Iterable[EvaluationEntry]) -> Iterator[str]:
        """Give a sentence for each of some evaluations that is not done."""
        for one in evaluations:
            if not one.asked and (state := self.record_of(one).state) != "done":  # `asked` is written when it is done
                yield f"`evaluate {one.method} on {one.task}` is {state}: give the run's command again."

    def write(self, folder: Path) -> None:
        """Write the manifest into the folder of its run."""
        trainings, evaluations = map(asdict, self.trainings), map(asdict, self.evaluations)
        about = {"schema": SCHEMA, "trainings": [*trainings], "evaluations": [*evaluations]}
        atomic.update_text(folder / FILE, atomic.json_text(about))


def read(folder: Path) -> Manifest | None:
    """Read the manifest of a run, wherever its folder lies by now; `None` if there is none.

    Raises:
        EnvironmentProblem: The manifest cannot be read, or another version wrote it; records of earlier versions have
            to be made again.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    about = read_json(path)
    check_schema(about, path)
    if about["schema"] != SCHEMA:
        raise unusable(path, "is of an earlier version, whose records are not read any more")
    evaluations = (one | {"levels": tuple(one["levels"]), "asked": tuple(one["asked"])} for one in about["evaluations"])
    return Manifest(
        # Without `..`, and of a link where the link lies: the run was moved to another disk
        Path(os.path.abspath(folder)).parent.parent,  # noqa: PTH100
        tuple(TrainingEntry(**one) for one in about["trainings"]),
        tuple(EvaluationEntry(**one) for one in evaluations),
    )


def of_run(folder: Path) -> Manifest:
    """Read the manifest of a folder that must be a run.

    Raises:
        UsageError: The folder is not a run.
        EnvironmentProblem: See `read`; or the run has no manifest.
    """
    check_run(folder)
    if (found := read(folder)) is None:
        raise unusable(folder / FILE, "is missing; it lists the records of the run")
    return found


def target_text(target: float | None, only_target: bool) -> str:
    """Return the target of a training as text, if a reader needs it to tell trainings apart; else an empty text."""
    return "" if target is None or only_target else f" for {100 * target:.4g} %"


def is_of_run(folder: Path) -> bool:
    """Whether the folder of a saved model is the checkpoint of a record."""
    return folder.name == CHECKPOINT and Record(folder.parent).read("config") is not None


def make_again(folder: Path) -> str:
    """Return a sentence that says what to do about a damaged or incomplete saved model. The model of a run has to be
    removed first, since a run computes nothing that its records have.
    """
    if not is_of_run(folder):
        return "Save or copy the model again."
    return (
        f"Remove the folder {str(folder.parent)!r} and give the run's command again (`adaptive-bench retry RUN`): it "
        f"is trained and measured anew."
    )


def sparing(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return which sites a training or an evaluation with this config spares: arguments of `AdaptiveModel.build`."""
    said = content.get("eligible") or {"spared": (), "keep_first": False}  # no entry if nothing is spared
    return {"spared": [tuple(site) for site in said["spared"]], "keep_first": bool(said["keep_first"])}


def find_trained(
    run: Path | str, method: str | None, out: Path | str = DEFAULT_OUT, asked: str = "the method"
) -> tuple[Path, float | None, dict[str, Any]]:
    """Find a run, and return of one of its methods the checkpoint folder (that of its first evaluation), the saving
    that it was trained towards, if any, and which sites it spares, see `sparing`.

    The sites are read from the method's own record: the saved model of an untrained control is that of another method,
    which does not say.

    Args:
        run: The run's name, the beginning of its name, its folder, or `last`.
        asked: The option or argument that names the method, for messages.

    Raises:
        UsageError: There is no such run, no method is named, or the run does not have it.
        EnvironmentProblem: The method is not trained yet.
    """
    listed = of_run(find_run(run, Path(out)))
    methods = ", ".join(dict.fromkeys(one.method for one in listed.evaluations))
    if method is None:
        raise UsageError(f"A run has several methods ({methods}), got {str(run)!r} and no {asked}. Name one.")
    spec = str(MethodSpec.parse(method))
    if (found := next((one for one in listed.evaluations if one.method == spec), None)) is None:
        raise UsageError(f"The run has the methods {methods}, got {asked} {method!r}. Name one of them.")
    training = listed.training_of(found)
    record = Record(listed.records_home() / training.record)
    if not record.has_result:
        raise EnvironmentProblem(
            f"A model must be trained before it writes, but `{training}` is not finished or its checkpoint was "
            f"removed. Give the run's command again."
        )
    content = Record(listed.out / "records" / found.record).read("config") or {}
    return record.folder / CHECKPOINT, training.target, sparing(content)
