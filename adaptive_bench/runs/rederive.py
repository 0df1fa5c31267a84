"""Is a table what its records say? Made again from them and compared row by row; nothing is trained or measured."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, one_line
from adaptive_bench.runs.outcome.differences import differences
from adaptive_bench.runs.outcome.method_facts import method_facts, recorded_code
from adaptive_bench.runs.outcome.notes import notes_on
from adaptive_bench.runs.outcome.table import outcome_of
from adaptive_bench.runs.planning.manifest import of_records, plan_of, sealed_manifest_of
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.recorded_answers import RecordedAnswers
from adaptive_bench.runs.recorded_settings import check_settings
from adaptive_bench.runs.recorded_training import check_trainings
from adaptive_bench.runs.work.left import absent, left
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.manifest import PACKED, Manifest, read_packed
from adaptive_bench.store.packing import unpack
from adaptive_bench.store.records import Record
from adaptive_bench.store.results import RUN, digest_in_entry, read_json

_PROJECTED = ("projected_net", "projected_shape")
_Row = Mapping[str, Any]


@dataclass(frozen=True)
class Rederived:
    """A table beside the one its records give.

    Attributes:
        rows: How many rows the records give.
        differences: Rows that are not the same in both, in words.
        unprojected: Methods whose plugin is not here: what they would save on another shape is not compared, as only
            the method knows the sizes it has there.
        sealed: Whether the entry has seals of its records, to which these were held; early ones have none.
        unscored: By task why what models wrote was not scored again, as the end of a sentence.
    """

    rows: int
    differences: tuple[str, ...]
    unprojected: tuple[str, ...] = ()
    sealed: bool = False
    unscored: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Derived:
    """What the packed records of a run come to, in the plain values of its files.

    Attributes:
        rows, answers, methods: As in `table.json`, `answers.json` and the `methods` of `methods.json`; of a method
            whose plugin is not here there is its `code` alone, which is `None` where records do not tell.
        warnings: What a reader of the table should know, as far as records tell.
        environments: The `env.json` of each record.
        recipes: By method what its trainings say of how they were trained.
        unprojected, sealed, unscored: See `Rederived`.
        seen: What `look` gave.
    """

    rows: list[dict[str, Any]]
    answers: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    warnings: list[str]
    environments: list[dict[str, Any]]
    recipes: dict[str, list[dict[str, Any]]]
    unprojected: tuple[str, ...]
    sealed: bool
    unscored: Mapping[str, str]
    seen: Any = None


def derive(config: RunConfig, packed: Path, look: Callable[[Sequence[Path]], Any] | None = None) -> Derived:
    """Make a table again from its records alone, with what lies beside a table. Arguments and errors as for
    `rederive`.

    Args:
        look: Is given the folders of the records while they are unpacked.
    """
    with tempfile.TemporaryDirectory() as folder:
        unpack(packed, Path(folder), digest_in_entry(packed), _records_beside(packed), lasting=False)
        listed = read_packed(packed.with_name(PACKED), Path(folder))
        if listed is not None:
            # Timings of the archive have seals of their own: those of the list are of files that may name a folder.
            replace(listed, timings={}).check()
        there = config.model_copy(update={"out": Path(folder)})
        records = [Record(Path(folder) / "records" / key) for key in _keys(Path(folder))]
        _check_records(records, config.seeds)
        found_in = of_records(there, [record.folder.name for record in records])
        whole = plan_of(there, found_in)
        if missing := [*absent(whole), *map(str, left(whole, Path(folder)))]:
            raise EnvironmentProblem(
                f"A table is made again from all its records, but {len(missing)} of them are missing in "
                f"{packed.name}, the first: {missing[0]}. Submit the finished run again with --records."
            )
        check_settings(whole)
        check_trainings(whole)
        if listed is not None:
            _check_listed(listed, sealed_manifest_of(whole))
            trainings = [one.record for one in listed.trainings]
            if (named := _records_beside(packed)) not in (None, trainings):
                _refuse(f"the order of records in {RUN}", trainings, named)
        answers = RecordedAnswers(there)
        found = outcome_of(whole, check=answers.check)
        rows = json.loads(atomic.json_text([row.to_json() for row in found.rows]))
        away = {str(sweep.spec) for sweep in whole.sweeps if sweep.spec.name not in registry.names("methods")}
        recipes: dict[str, list[dict[str, Any]]] = {}
        for training in whole.trainings:
            recipes.setdefault(str(training.spec), []).append(training.record.read("config.json") or {})
        return Derived(
            rows,
            json.loads(atomic.json_text(found.answers)),
            _methods(whole),
            [*notes_on(rows, there), *found.warnings],
            [record.read("env.json") or {} for record in records],
            recipes,
            tuple(sorted(away)),
            listed is not None and bool(listed.seals),
            answers.unscored,
            None if look is None else look([record.folder for record in records]),
        )


def rederive(config: RunConfig, packed: Path, rows: Sequence[_Row]) -> Rederived:
    """Compare the table of a run with the one that its records give.

    Args:
        config: The run; its output folder is not touched.
        packed: Its records, as `pack` wrote them.
        rows: Its table, as it is in `table.json`.

    Raises:
        EnvironmentProblem: The records are damaged or are not those of the entry, or measured points are missing among
            them.
        UsageError: The config names a task that does not exist here.
    """
    now = derive(config, packed)
    found = [row for row in now.rows if _is_comparable(row, now.unprojected)]
    return Rederived(
        len(found), tuple(differing(rows, now.rows, now.unprojected)), now.unprojected, now.sealed, now.unscored
    )


def differing(rows: Sequence[_Row], now: Sequence[_Row], unprojected: Collection[str]) -> list[str]:
    """Rows of a table that are not what the records say, in words (see `differences`).

    Args:
        rows: Of the table.
        now: Those that `derive` gives.
        unprojected: See `Rederived`.
    """
    said, found = (
        [_comparable(row, unprojected) for row in table if _is_comparable(row, unprojected)] for table in (rows, now)
    )
    return differences(said, found)


def _methods(whole: Plan) -> dict[str, dict[str, Any]]:
    specs = [MethodSpec.parse(text) for text in whole.config.methods]
    here = [str(spec) for spec in specs if spec.name in registry.names("methods")]
    some = replace(whole, config=whole.config.model_copy(update={"methods": tuple(here)}))
    facts: dict[str, dict[str, Any]] = method_facts(some)["methods"]
    return {str(spec): facts.get(str(spec), {}) | {"code": recorded_code(whole, spec)} for spec in specs}


def _check_records(records: Sequence[Record], seeds: Sequence[int]) -> None:
    """Refuse records that are not one run's: of several models, of other seeds, or twice the same training."""
    models: dict[str, str] = {}
    trained: dict[str, str] = {}
    for record in records:
        record.check_key()
        said = record.read("config.json") or {}
        name = record.folder.name
        if "method" in said and said.get("seed") not in seeds:
            raise EnvironmentProblem(
                f"The records of a run are of its seeds, {', '.join(map(str, seeds))}, but {name} is of "
                f"{said['method']}, seed {said.get('seed')}. Submit the run again."
            )
        models.setdefault(str(said.get("backbone")), name)
        of_training = json.dumps([said.get(key) for key in ("method", "seed", "target")])
        if (other := trained.setdefault(of_training, name)) != name:
            raise EnvironmentProblem(
                f"A run has one training of each method, seed and target, but the records {other} and {name} are both "
                f"of {said.get('method')}, seed {said.get('seed')}. Submit the run again."
            )
    if len(models) > 1:
        named = " and ".join(f"{model!r} in {name}" for model, name in list(models.items())[:2])
        raise EnvironmentProblem(
            f"The records of a run are of one model, but these are of {len(models)}: {named}. Submit one run of each."
        )


def _check_listed(said: Manifest, known: Manifest) -> None:
    """Refuse a list of records that is not the one these records give, whatever its order."""
    if said.run_key not in (None, known.run_key):
        _refuse("run_key", said.run_key, known.run_key)
    for name in ("trainings", "evaluations"):
        one, other = ({piece.record: asdict(piece) for piece in getattr(of, name)} for of in (said, known))
        if len(one) != len(getattr(said, name)):
            _refuse(name, "a record twice", "each once")
        _compare(name, one, other)
    _compare("seals", said.seals, known.seals)
    _compare("timings", said.timings, known.timings)


def _compare(name: str, said: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for record in sorted(said.keys() | known.keys()):
        one, other = said.get(record), known.get(record)
        if isinstance(one, dict) and isinstance(other, dict):
            _compare(f"{name} of {record}", one, other)
        elif one != other:
            _refuse(f"{name} of {record}" if name in ("seals", "timings") else f"{record} in {name}", one, other)


def _refuse(place: str, said: object, known: object) -> NoReturn:
    raise EnvironmentProblem(
        f"A run lists its records as what they are, but {PACKED} says of {place}: {one_line(repr(said), 120)}, by the "
        f"records {one_line(repr(known), 120)}. Submit the run again."
    )


def _records_beside(packed: Path) -> list[str] | None:
    """Which records the run of an archive says that it has; `None` where no run says it."""
    about = packed.with_name(RUN)
    named = read_json(about).get("records") if about.is_file() else None
    return named if isinstance(named, list) else None


def _is_comparable(row: _Row, away: Collection[str]) -> bool:
    return row["axis"] != "projected" or _spec_of(row) not in away


def _comparable(row: _Row, away: Collection[str]) -> _Row:
    """A row without what it says of a projection, where the method is not here."""
    return row if _spec_of(row) not in away else {key: value for key, value in row.items() if key not in _PROJECTED}


def _spec_of(row: _Row) -> str:
    return str(row["method"]) + ("" if row["semantics"] == "bench" else f"@{row['semantics']}")


def _keys(out: Path) -> list[str]:
    return sorted(folder.name for folder in (out / "records").iterdir())
