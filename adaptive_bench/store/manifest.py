"""The manifest: a run's list of its records, written when the run begins and completed with its points at the end.

Results are looked up in this list and not by key, so that they are found whatever code, model and data are installed
now. Only a run that computes asks by key, since whether a result may be used again does depend on these
(`runs.run_plan`).

A run refers to the records in its manifest, to the training behind each evaluation, and to the training that another
training starts from. Nothing that a run refers to is ever deleted, and nothing is deleted while a process works on the
records in question.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic, lock
from adaptive_bench.store.records import CHECKPOINT, SCHEMA, DialEvaluationRecord, Record, check_schema
from adaptive_bench.store.runs import DEFAULT_OUT, check_run, find_run, is_run, read_json, run_name, unusable
from adaptive_bench.task import DocumentSplit

FILE = "manifest.json"
Variant = Literal["", "shuffled"]  # an evaluation is of the method itself, or of its control of shuffled decisions


@dataclass(frozen=True)
class TrainingEntry:
    """One training of a run, see `runs.work_units.TrainingRun`.

    Attributes:
        record, base: Names of its record and of that of the training that it starts from, if any.
        only_target: Whether the spec has no other target in this run.
    """

    record: str
    method: str
    seed: int
    target: float | None
    only_target: bool
    base: str | None


@dataclass(frozen=True)
class EvaluationEntry:
    """One method spec and seed on one task, see `runs.work_units.DialEvaluation`.

    Attributes:
        record: Path of its record below the folder of records.
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
        """Return the record of an evaluation; once it is finished, with only the points that the run asked for."""
        return DialEvaluationRecord(self.records_home() / evaluation.record, evaluation.asked or None)

    def records_home(self) -> Path:
        """Return the folder of records; an `EnvironmentProblem` if the run was copied without them, or was moved."""
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
        atomic.write_text(folder / FILE, atomic.json_text(about))


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
        raise unusable(path, "does not list records")
    check_schema(about, path)
    if about["schema"] != SCHEMA:
        raise unusable(path, "is of an earlier version, whose records are not read any more")
    # Without `..`, and of a link where the link lies: the run was moved to another disk
    out = Path(os.path.abspath(folder)).parent.parent  # noqa: PTH100
    try:
        evaluations = [
            EvaluationEntry(**one | {"levels": tuple(one["levels"]), "asked": tuple(one["asked"])})
            for one in about["evaluations"]
        ]
        return Manifest(out, tuple(TrainingEntry(**one) for one in about["trainings"]), tuple(evaluations))
    except (LookupError, TypeError) as error:
        raise unusable(path, f"does not list records ({type(error).__name__}: {error})") from error


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


def is_of_run(folder: Path) -> bool:
    """Whether a saved model is the checkpoint of a record."""
    return folder.name == CHECKPOINT and Record(folder.parent).read("config") is not None


def make_again(folder: Path) -> str:
    """Return a sentence that says what to do about a damaged or incomplete saved model."""
    if not is_of_run(folder):
        return "Save or copy the model again."
    # Removed first, since a run computes nothing that its records have.
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
            f"A model must be trained before it writes, but that of {spec} is not finished or its checkpoint "
            f"was removed. Give the run's command again."
        )
    # The saved model of an untrained control is another method's, which does not say what this one spares.
    content = Record(listed.out / "records" / found.record).read("config") or {}
    return record.folder / CHECKPOINT, training.target, sparing(content)


@dataclass(frozen=True)
class RecordStatus:
    """The status of one training or evaluation.

    Attributes:
        work: `train`, or the task that is evaluated.
        state: The state of the record; `stopped` if the record says `running` but no process holds it, `damaged` if the
            record cannot be read.
        progress: Steps logged, or points measured.
        reason: Why the work failed, or what is damaged.
    """

    work: str
    method: str
    seed: int | None
    state: str
    since: str
    progress: str
    reason: str
    folder: Path


@dataclass(frozen=True)
class Removable:
    """A folder that nothing refers to; `what` it holds is for the reader."""

    folder: Path
    what: str
    size_bytes: int


def pieces(out: Path) -> Iterator[RecordStatus]:
    """List every training and evaluation in an output folder, each training before its evaluations."""
    training: RecordStatus | None = None
    for record in _records(out):
        found = _piece(out / "records" / record, training if "/" in record else None)
        training = training if "/" in record else found
        yield found


def _piece(folder: Path, training: RecordStatus | None) -> RecordStatus:
    record = DialEvaluationRecord(folder)
    try:
        about, status, state = record.read("config") or {}, record.read("status") or {}, str(record.state)
    except EnvironmentProblem as error:  # it cannot be read, or a newer version wrote it
        work, seed = ("train", None) if training is None else ("?", training.seed)
        return RecordStatus(work, "?", seed, "damaged", "", "", message_of(error), folder)
    if state == "partial" and status.get("state") == "running":
        state = "stopped"
    if training is None:
        steps = about.get("recipe", {}).get("steps", 0)
        done = steps if state == "done" else len(record.losses())
        work, seed, progress = "train", about.get("seed"), f"{done} of {steps} steps"
    else:
        which, points = about.get("split", about.get("variant")), len(record.savings())
        work = str(about.get("task", "?")) + ("" if which is None else f" ({which})")
        seed, progress = training.seed, f"{points} point{'' if points == 1 else 's'}"
    method, since = str(about.get("method", "?")), str(status.get("since", ""))
    return RecordStatus(work, method, seed, state, since, progress, str(status.get("reason", "")), folder)


def removable_with(run: Path) -> list[Removable]:
    """List what may be deleted with a run: its folder, and those of its records that nothing else needs: no other run,
    no training that starts from them, and no evaluation outside of the run.

    Raises:
        UsageError: The folder is not a run of an output folder.
        EnvironmentProblem: The run is under way, or it is unknown which records another run refers to.
    """
    check_run(run)
    if run.is_symlink() or run.resolve().parent.name != "runs":
        raise UsageError(
            f"Only a run that is a folder in the `runs` of an output folder can be removed, got {str(run)!r}, which is "
            f"a link or lies elsewhere. Remove that folder or link yourself."
        )
    found, out = [Removable(run, "run", _size(run))], run.resolve().parent.parent
    try:
        own = {*of_run(run).records}
    except EnvironmentProblem:  # its records are not known; `clean` finds them
        return found
    _check_free(out, own)
    records = _records(out)
    # Records that were never this run's stay, even if no run refers to them: `clean` removes those.
    return [*found, *_unreferenced(out, records, {*records} - own | _referred_to(out, but=run))]


def unreferenced(out: Path, *, trials: bool = False) -> list[Removable]:
    """List the records of an output folder that no run refers to.

    Args:
        trials: Whether to list trainings that were never evaluated on test documents, too. These are trials of `tune`;
            the same `tune` command would use them again, or continue them if it was stopped.

    Raises:
        EnvironmentProblem: A record is under way, or it is unknown which records a run refers to.
    """
    records = _records(out)
    _check_free(out, records)
    # A trial is evaluated on validation documents alone, or not at all yet, if its study was stopped.
    evaluations = {one: said for one in records if "/" in one and (said := _said(out, one))}
    tested = {_training(one) for one, said in evaluations.items() if said.get("split", "test") == "test"}
    tried = {one for one in records if _training(one) not in tested}
    return _unreferenced(out, records, _referred_to(out) | (set() if trials else tried))


def _check_free(out: Path, records: Iterable[str]) -> None:
    if held := [record for record in sorted(records) if lock.is_held(out / "records" / record)]:
        raise EnvironmentProblem(
            f"Records can be removed while no process works on them, but {held[0]} in {str(out)!r} is under way. Stop "
            f"it, or wait until it is done; `adaptive-bench status` shows it."
        )


def _records(out: Path) -> list[str]:
    """List the records by their names below the folder of records, each training before its evaluations."""
    home = out / "records"
    names = [one.relative_to(home).parts for form in ("*", "*/eval/*") for one in home.glob(form) if one.is_dir()]
    return ["/".join(parts) for parts in sorted(names) if not any(part.startswith(".") for part in parts)]


def _training(record: str) -> str:
    return record.partition("/")[0]


def _said(out: Path, record: str) -> dict[str, Any]:
    return Record(out / "records" / record).read("config") or {}


def _referred_to(out: Path, but: Path | None = None) -> set[str]:
    """Return the records that the runs of an output folder refer to, without those of the run `but`."""
    home, found = out / "runs", set[str]()
    for run in sorted(home.iterdir()) if home.is_dir() else ():
        # A link that leads nowhere may be a run on a disk that is not there.
        if not (is_run(run) or run.is_symlink()) or (but is not None and run.resolve() == but.resolve()):
            continue
        try:
            listed = of_run(run)
        except AdaptiveBenchError as error:
            lost = "Or remove the run with `adaptive-bench rm`."
            if not run.exists():
                lost = f"{str(run)!r} is a link that leads nowhere: bring back what it leads to, or remove the link."
            raise EnvironmentProblem(
                f"Records that a run refers to are kept, but those of {run_name(run)!r} are not known: "
                f"{message_of(error)} {lost}"
            ) from error
        found |= {*listed.records}
    return found


def _unreferenced(out: Path, records: Sequence[str], kept: set[str]) -> list[Removable]:
    """List the records that are not kept."""
    staying, gone, waiting = set[str](), list[Removable](), [_training(one) for one in records if one in kept]
    while waiting:  # a training that stays keeps the training it starts from
        if (training := waiting.pop()) not in staying:
            staying.add(training)
            waiting += [base] if (base := _said(out, training).get("base")) else []
    for record in records:
        # Of a training that stays, evaluations go; any other goes as a whole.
        if record not in kept and ("/" in record) == (_training(record) in staying):
            folder, said = out / "records" / record, _said(out, record)
            what = " on ".join(str(said[key]) for key in ("method", "task") if key in said)
            gone.append(Removable(folder, what, _size(folder)))
    return gone


def _size(folder: Path) -> int:
    """Return the bytes of all files below a folder; a link counts as itself."""
    return sum(Path(place, name).lstat().st_size for place, _, names in os.walk(folder) for name in names)
