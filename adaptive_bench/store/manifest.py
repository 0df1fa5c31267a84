"""A run's list of its own records, written when the run begins, and with seals of what they hold when it has ended.

Whoever looks for a result asks this list and no key: where a result is does not depend on the code, the model and the
data that are here now. Whether it may be used again does, and that only a run that computes asks
(`runs.planning.plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store import atomic, seals, timings
from adaptive_bench.store.digest import sealed
from adaptive_bench.store.files import files_of, forget, missing_halves, read_file
from adaptive_bench.store.records import DialEvaluationRecord, Record
from adaptive_bench.store.run_files import check_files, check_key, output_of, run_command
from adaptive_bench.store.schema import SCHEMA
from adaptive_bench.store.seals import Seals
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
        run_key: Of the run (`store.runs.run_key`); `None` in lists of earlier versions.
        seals: By record, below the folder of records, what its files were when the run ended (see `store.seals`); empty
            before that, and in lists of earlier versions.
        timings: By name of a timing that the table was made with, the digest it ended with.
    """

    out: Path
    trainings: tuple[TrainingEntry, ...]
    evaluations: tuple[EvaluationEntry, ...]
    run_key: str | None = None
    seals: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, str] = field(default_factory=dict)

    @property
    def records(self) -> list[str]:
        """Every record, below the folder of records: each training before what evaluates it."""
        return [*(one.record for one in self.trainings), *(one.record for one in self.evaluations)]

    def training_of(self, evaluation: EvaluationEntry) -> TrainingEntry:
        """The training an evaluation hangs on."""
        return next(one for one in self.trainings if one.record == evaluation.training)

    def record_of(self, evaluation: EvaluationEntry) -> DialEvaluationRecord:
        """State, log and measured points of an evaluation: of a finished run those that it ended with.

        Raises:
            EnvironmentProblem: It, or its training, is not what this list says of it, or is not what it was when the
                run ended.
        """
        training = self.training_of(evaluation)
        own = self.seals_of(evaluation.record) or None
        record = DialEvaluationRecord(self.out / "records" / evaluation.record, own)
        self.check(training.record, evaluation.record)
        check_training(training, Record(self.out / "records" / training.record))
        check_evaluation(evaluation, record)
        return record

    def broken(self, *records: str, deep: bool = False) -> Iterator[str]:
        """Files of some records, of all without any, that are not what they were when the run ended: each with what is
        wrong. Without seals there is nothing to hold them to.

        Args:
            deep: See `store.seals.broken`.
        """
        for record in records or self.seals:
            folder = self.out / "records" / record
            for found in seals.broken(files_of(folder), self.seals_of(record), deep=deep):
                yield f"{folder / found.name} {found.how}"
        if not records:
            yield from self.broken_timings()

    def broken_timings(self) -> Iterator[str]:
        """Timings that are not what they were when the run ended."""
        known = timings.seals_in(self.out)
        for name, seal in self.timings.items():
            if known.get(name) != seal:
                how = "changed" if name in known else "is missing"
                yield f"{self.out / timings.FOLDER / name} {how}"

    def check(self, *records: str, deep: bool = False) -> None:
        """Refuse records, all of them without any, that are not what they were when the run ended.

        Args:
            deep: See `store.seals.broken`.

        Raises:
            EnvironmentProblem: A file of theirs is missing or is another one; all are counted, the first is named.
        """
        if found := list(self.broken(*records, deep=deep)):
            self.check_home()
            more = f", and {len(found) - 1} more file(s) are not what they were" if found[1:] else ""
            raise EnvironmentProblem(
                f"The results of a finished run stay as they were when it ended, but {found[0]} since then{more}. "
                f"Another run may have made them anew, or somebody changed them. Put them back; or give the run's "
                f"command again, which makes what is missing and its table of what is there."
            )

    def check_home(self) -> None:
        """Refuse a run without any records: it was copied alone, or the folder that it names was moved.

        Raises:
            EnvironmentProblem: With how they come together.
        """
        home = self.out / "records"
        if not home.is_dir():
            raise EnvironmentProblem(
                f"A run is read with its records, but there is no folder {str(home)!r}. Put it back; or move the "
                f"run's folder to where its records lie, into the folder `runs` beside `records`."
            )

    def unfinished(self, evaluations: Iterable[EvaluationEntry]) -> Iterator[str]:
        """Which of some evaluations are not done, or lack half of a measured point: sentences. What was sealed is
        `check`ed instead.
        """
        for one in evaluations:
            if one.record in self.seals:
                continue
            record = Record(self.out / "records" / one.record)
            what = f"`evaluate {one.method} on {one.task}`"
            if halves := missing_halves(record.files.names()):
                yield f"{what} lacks {record.folder / halves[0]}: give the run's command again."
            elif record.state != "done":
                yield f"{what} is {record.state}: give the run's command again."

    def sealed(
        self, used: Iterable[Path] = (), measured: Mapping[str, Collection[float]] = MappingProxyType({})
    ) -> Manifest:
        """The same list with the seals of what its records hold now.

        Args:
            used: The timings that the table is made with.
            measured: By record of an evaluation, the savings that the run itself asked for; of others that lie there
                nothing is sealed. All are, where a record is not named.
        """
        home = self.out / "records"
        found = {
            record: seals.as_text(seals.seals_of(files_of(home / record), measured.get(record)))
            for record in self.records
        }
        known = timings.seals_in(self.out)
        return replace(self, seals=found, timings={path.name: known[path.name] for path in sorted(used)})

    def still_sealed(self, still: Callable[[str], bool]) -> Manifest:
        """The same list with those seals alone that hold.

        Args:
            still: Asked of each record whether it stays as it is.
        """
        kept = {record: text for record, text in self.seals.items() if still(record) and not any(self.broken(record))}
        known = timings.seals_in(self.out)
        timed = {name: seal for name, seal in self.timings.items() if known.get(name) == seal}
        return replace(self, seals=kept, timings=timed)

    def seals_of(self, record: str) -> Seals:
        """What the files of a record were when the run ended, nothing where that is not known.

        Raises:
            EnvironmentProblem: The list says something else.
        """
        try:
            return seals.from_text(self.seals.get(record, ""))
        except ValueError as error:
            raise EnvironmentProblem(
                f"A run's {FILE} holds seals of its records, but of {record!r} it has {error}. It was changed: give "
                f"the run's command again, which writes a new one and computes nothing twice."
            ) from error

    def stands_in(self, folder: Path) -> bool:
        """Whether the folder of its run has this list."""
        file = folder / FILE
        return file.is_file() and file.read_bytes() == self.text.encode("utf-8")

    def write(self, folder: Path) -> None:
        """Put the list into the folder of its run."""
        atomic.update_text(folder / FILE, self.text)
        forget(folder)

    @cached_property
    def text(self) -> str:
        """What its file says, with the digest of it."""
        about = {
            "schema": SCHEMA,
            "run_key": self.run_key,
            "trainings": [asdict(one) for one in self.trainings],
            "evaluations": [one.to_json() for one in self.evaluations],
            "seals": dict(self.seals),
            "timings": dict(self.timings),
        }
        return sealed(atomic.json_text(about))


def read(folder: Path) -> Manifest | None:
    """The manifest of a run, wherever its folder lies by now; `None` where there is none.

    Raises:
        EnvironmentProblem: It is damaged, or another run's.
    """
    check_files(folder, FILE)
    if not (folder / FILE).is_file():
        return None
    about = read_file(folder / FILE)
    if about is None:
        raise EnvironmentProblem(
            f"A run's {FILE} stays as the run wrote it, but that in {str(folder)!r} changed since. {_anew(folder)}"
        )
    if (key := about.get("run_key")) is not None:
        check_key(folder, FILE, key, run_command(folder))
    try:
        return from_json(about, output_of(folder))
    except (LookupError, TypeError, AttributeError) as error:
        raise EnvironmentProblem(
            f"A run's {FILE} lists its records, but that in {str(folder)!r} does not ({type(error).__name__}: "
            f"{error}). {_anew(folder)}"
        ) from error


def from_json(about: Mapping[str, Any], out: Path) -> Manifest:
    """The manifest that a file says, of records in an output folder.

    Raises:
        LookupError, TypeError, AttributeError: It says something else.
    """
    evaluations = tuple(_evaluation(values) for values in about["evaluations"])
    trainings = tuple(TrainingEntry(**values) for values in about["trainings"])
    known: tuple[Mapping[str, str], ...] = about.get("seals", {}), about.get("timings", {})
    if not all(isinstance(one, dict) and all(isinstance(text, str) for text in one.values()) for one in known):
        raise TypeError("seals are texts by record")
    records = [*(one.record for one in trainings), *(one.record for one in evaluations)]
    for name in (*records, *known[0], *known[1]):
        if not name or {"", ".", ".."} & set(name.split("/")):
            raise LookupError(f"{name!r} is not the name of anything below the folder of records")
    return Manifest(out, trainings, evaluations, about.get("run_key"), *known)


def _anew(folder: Path) -> str:
    return f"To write a new one, which computes nothing twice: `{run_command(folder)}`."


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
