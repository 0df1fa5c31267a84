"""The manifest: a run's list of its records, written when the run begins and completed with its points at the end.

Results are looked up in this list and not by key, so that they are found whatever code, model and data are installed
now. Only a run that computes asks by key, since whether a result may be used again does depend on these
(`runs.run_plan`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.records import CHECKPOINT, SCHEMA, DialEvaluationRecord, Record, check_schema
from adaptive_bench.store.runs import DEFAULT_OUT, check_run, find_run, output_of, read_json, run_command, unusable
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

    def first_of(self, method: str) -> EvaluationEntry | None:
        """Return the first evaluation of a method spec, written in any way; `None` if the run does not have it."""
        spec = str(MethodSpec.parse(method))
        return next((one for one in self.evaluations if one.method == spec), None)

    def record_of(self, evaluation: EvaluationEntry) -> DialEvaluationRecord:
        """Return the record of an evaluation; once it is finished, with only the points that the run asked for.

        Raises:
            EnvironmentProblem: There is no folder of records for the run.
        """
        self.check_home()
        return DialEvaluationRecord(self.out / "records" / evaluation.record, evaluation.asked or None)

    def check_home(self) -> None:
        """Refuse a run without its records: the run was copied alone, or its output folder was moved.

        Raises:
            EnvironmentProblem: There is no folder of records; the message says how to bring the two together.
        """
        home = self.out / "records"
        if not home.is_dir():
            raise EnvironmentProblem(
                f"A run is read with its records, but there is no folder {str(home)!r}. Put it back; or move the "
                f"run's folder to where its records lie, into the folder `runs` beside `records`."
            )

    def unfinished(self, evaluations: Iterable[EvaluationEntry]) -> Iterator[str]:
        """Give a sentence for each of some evaluations that is not done or has lost measured points."""
        for one in evaluations:
            what = f"`evaluate {one.method} on {one.task}`"
            record = self.record_of(one)
            if lost := len(one.asked) - len(record.savings()) if one.asked else 0:
                of_all = f"{lost} of its {len(one.asked)} measured points"
                yield f"{what} lacks {of_all} in {record.folder}: give the run's command again."
            elif not one.asked and record.state != "done":
                yield f"{what} is {record.state}: give the run's command again."

    def lost(self) -> list[str]:
        """Return a sentence for each finished evaluation that has lost measured points."""
        return list(self.unfinished(one for one in self.evaluations if one.asked))

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
    if not isinstance(about, dict):
        raise unusable(path, "must list the records of its run")
    check_schema(about, path)
    if about.get("schema") != SCHEMA:
        raise EnvironmentProblem(
            f"The run in {str(folder)!r} was made by an earlier version, whose records are not read any more. To make "
            f"it again: `{run_command(folder)}`."
        )
    try:
        trainings = tuple(TrainingEntry(**values) for values in about["trainings"])
        evaluations = tuple(
            EvaluationEntry(**{**values, "levels": tuple(values["levels"]), "asked": tuple(values["asked"])})
            for values in about["evaluations"]
        )
    except (LookupError, TypeError) as error:
        raise unusable(path, f"must list the records of its run ({type(error).__name__}: {error})") from error
    return Manifest(output_of(folder), trainings, evaluations)


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


def checkpoint_of(run: Path, method: str | None, asked: str = "--method") -> tuple[Path, float | None]:
    """Return the checkpoint folder of a method of a run (that of its first evaluation), and the saving that it was
    trained towards, if any.

    Args:
        asked: The option or argument that names the method, for messages.

    Raises:
        UsageError: No method is named, or the run does not have it.
        EnvironmentProblem: The method is not trained yet.
    """
    listed = of_run(run)
    known = list(dict.fromkeys(one.method for one in listed.evaluations))
    methods = ", ".join(known)
    if method is None:
        raise UsageError(f"A run has several methods ({methods}), got {str(run)!r} and no {asked}. Name one.")
    if (found := listed.first_of(method)) is None:
        hint = registry.did_you_mean(str(MethodSpec.parse(method)), known)
        raise UsageError(f"The run has the methods {methods}, got {asked} {method!r}. {hint}")
    training = listed.training_of(found)
    listed.check_home()
    record = Record(listed.out / "records" / training.record)
    if record.has_result:
        return record.folder / CHECKPOINT, training.target
    raise EnvironmentProblem(
        f"A model must be trained before it writes, but `{training}` is not finished or its checkpoint was removed. "
        f"Give the run's command again."
    )


def sparing(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return which sites a training or an evaluation with this config spares: arguments of `AdaptiveModel.build`."""
    said = content.get("eligible") or {"spared": (), "keep_first": False}
    return {"spared": [tuple(site) for site in said["spared"]], "keep_first": bool(said["keep_first"])}


def sparing_of(run: Path, method: str) -> dict[str, Any]:
    """Return which sites a method of a run spares. This is read from the method's own record: the saved model of an
    untrained control is that of another method, which does not say.
    """
    listed = of_run(run)
    found = listed.first_of(method)
    content = None if found is None else Record(listed.out / "records" / found.record).read("config")
    return sparing(content or {})


def find_trained(
    run: Path | str, method: str, out: Path | str = DEFAULT_OUT
) -> tuple[Path, float | None, dict[str, Any]]:
    """Find a run and return checkpoint and target of one of its methods, and which sites the method spares.

    Args:
        run: The run's name, the beginning of its name, its folder, or `last`.

    Raises:
        UsageError: There is no such run, or the run does not have the method.
        EnvironmentProblem: The method is not trained yet.
    """
    folder = find_run(run, Path(out))
    return *checkpoint_of(folder, method, asked="the method"), sparing_of(folder, method)
