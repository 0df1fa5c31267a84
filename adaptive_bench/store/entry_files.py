"""Writes and reads the measurements of a leaderboard entry as Parquet files, which anybody can open with pandas.

points.parquet: One row for each seed, method, task and measured dial value, with the conditions under which it is
    comparable and the versions it was made with. Shuffled controls and validation documents have rows too.
documents.parquet: One row for each document at each point, with its score in every metric; `point` is the number of the
    row in points.parquet.
texts.parquet: The texts written for a few documents of each point.
training.parquet: One row for each training, with its cost, its target and its log.
timings.parquet: One row for each method, setting and timed dial value; only if the run was timed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_bench.errors import EnvironmentProblem, message_of, one_line
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluation import MATCH_PHASES, SAVING_NAMES
from adaptive_bench.store.measured import (
    Documents,
    MeasuredPoint,
    MeasuredSweep,
    MeasuredTraining,
    Text,
    TimeCurve,
)

if TYPE_CHECKING:
    import pyarrow

POINTS, DOCUMENTS, TEXTS = "points.parquet", "documents.parquet", "texts.parquet"
TRAINING, TIMINGS = "training.parquet", "timings.parquet"
# Columns that hold a value of a point as it is.
_POINT = ("asked_saving", "dial", "seconds", "bytes_per_token", "projected_shape", "attention_executed", "mlp_executed")
_SWEEP = ("method", "task", "seed", "training", "target", "split", "variant")  # what the points of a sweep share
_CONDITIONS = ("model", "backbone", "recipe", "task_version", "shots", "asked", "contents", "definition")
_COST = ("tokens", "flops", "parameters_added")
_FACTS = ("learning_rate", "order_sha256", "seconds", "made_with")
# Columns by file, each with its type; if the type ends with a question mark, values may be missing.
_COLUMNS: Mapping[str, Mapping[str, str]] = {
    POINTS: {
        **dict.fromkeys(("method", "task", "training", "split", "variant", "made_with"), "text"),
        **dict.fromkeys(("seed", "documents"), "whole"),
        **dict.fromkeys(("asked_saving", "dial", "seconds"), "number"),
        **dict.fromkeys(("levels", "attention_executed", "mlp_executed"), "numbers"),
        "scores": "by name",
        **dict.fromkeys(("eligible", "projected_shape", "documents_sha256", *_CONDITIONS), "text?"),
        "shots": "whole?",
        **dict.fromkeys(("target", "bytes_per_token"), "number?"),
        **dict.fromkeys((f"saved_{name}" for name in SAVING_NAMES), "number?"),
        **dict.fromkeys((f"flops_{phase}" for phase in MATCH_PHASES), "number?"),
    },
    DOCUMENTS: {"point": "whole", "document": "whole", "log_likelihood": "number?", "size_bytes": "number?"},
    TEXTS: {"point": "whole", "document": "whole", "target": "text", "written": "text", "correct": "number?"},
    TRAINING: {
        **dict.fromkeys(("training", "method"), "text"),
        "seed": "whole",
        **dict.fromkeys(("base", "order_sha256", "made_with", "target_axis"), "text?"),
        **dict.fromkeys((*_COST, "learning_rate", "seconds", "target_saving", "target_tokens"), "number?"),
        "target_priced": "by name?",
        "target_whole_layers": "flag?",
        **dict.fromkeys(("steps", "losses"), "numbers"),
    },
    TIMINGS: {
        **dict.fromkeys(("method", "setting"), "text"),
        **dict.fromkeys(("saved_tokens", "saved_time"), "number"),
        "plain_ms": "number?",
    },
}
_Row = dict[str, Any]


@dataclass(frozen=True)
class Measurements:
    """All measurements of an entry.

    Attributes:
        sweeps: The measured sweeps, in the order in which they were made.
        trainings: The trainings, each after the training it starts from.
    """

    sweeps: Sequence[MeasuredSweep]
    trainings: Sequence[MeasuredTraining]


def write(folder: Path, measured: Measurements) -> None:
    """Write measurements into a folder."""
    points = [(sweep, point) for sweep in measured.sweeps for point in sweep.points]
    texts = [{"point": at, **vars(one)} for at, (_, point) in enumerate(points) for one in point.texts]
    # Every sweep of a method has the same curves.
    curves = {(sweep.method, name): curve for sweep in measured.sweeps for name, curve in sweep.curves.items()}
    timings = [
        {"method": method, "setting": setting, "saved_tokens": saved, "saved_time": time, "plain_ms": curve.plain_ms}
        for (method, setting), curve in curves.items()
        for saved, time in curve.points
    ]
    _write_rows(folder / POINTS, [_point(sweep, point) for sweep, point in points])
    _write_documents(folder / DOCUMENTS, [point.documents for _, point in points])
    _write_rows(folder / TEXTS, texts)
    _write_rows(folder / TRAINING, [_training(one) for one in measured.trainings])
    if timings:
        _write_rows(folder / TIMINGS, timings)


def read(folder: Path) -> Measurements:
    """Read the measurements in a folder.

    Raises:
        EnvironmentProblem: A file is missing, is no Parquet file, lacks a column or a value, or a number is infinite.
        LookupError, ValueError, UsageError: A row does not hold what `write` writes.
    """
    trainings: dict[str, MeasuredTraining] = {}
    for row in _rows(folder / TRAINING):
        trainings[row["training"]] = _training_of(row, trainings)  # its base has an earlier row
    curves: dict[str, dict[str, list[_Row]]] = {}
    for row in _rows(folder / TIMINGS) if (folder / TIMINGS).is_file() else ():
        curves.setdefault(row["method"], {}).setdefault(row["setting"], []).append(row)
    documents, texts = _documents(folder / DOCUMENTS), dict[int, list[Text]]()
    for row in _rows(folder / TEXTS):
        texts.setdefault(row.pop("point"), []).append(Text(**row))
    # The points of each sweep, in the order of their rows.
    grouped: dict[tuple[Any, ...], list[_Row]] = {}
    for number, row in enumerate(_rows(folder / POINTS)):
        MethodSpec.parse(row["method"])  # refuses what is no spec
        # `_table` has checked plain numbers, but not those inside lists and maps.
        shares = (*row["attention_executed"], *row["mlp_executed"])
        if not all(map(math.isfinite, (*row["levels"], *dict(row["scores"]).values(), *shares))):
            raise ValueError(f"{POINTS}: levels, scores and shares are finite numbers")
        if number not in documents:
            raise ValueError(f"{DOCUMENTS}: there are none of point {number}")
        about = {"training": trainings[row["training"]], "scored": documents[number], "texts": texts.pop(number, ())}
        grouped.setdefault(tuple(row[name] for name in _SWEEP), []).append(row | about)
    sweeps = [
        _sweep(rows, {name: _curve(points) for name, points in curves.get(rows[0]["method"], {}).items()})
        for rows in grouped.values()
    ]
    if texts:  # those that no point has taken
        raise ValueError(f"{TEXTS}: there is no point {min(texts)}")
    return Measurements(sweeps, list(trainings.values()))


def _point(sweep: MeasuredSweep, one: MeasuredPoint) -> _Row:
    return {
        **{name: getattr(sweep, name) for name in (*_SWEEP, "levels", "eligible", "made_with", "documents_sha256")},
        "training": sweep.training.key,
        **{name: getattr(one, name) for name in _POINT},
        "documents": len(one.documents.numbers),
        "scores": list(one.scores.items()),
        **{f"saved_{name}": value for name, value in one.savings.items()},
        **{f"flops_{phase}": value for phase, value in one.flops.items()},
        **{name: sweep.conditions[name] for name in _CONDITIONS},
    }


def _sweep(rows: Sequence[_Row], curves: Mapping[str, TimeCurve]) -> MeasuredSweep:
    first = rows[0]
    return MeasuredSweep(
        **{name: first[name] for name in (*_SWEEP, "eligible", "made_with", "documents_sha256")},
        levels=tuple(first["levels"]),
        conditions={name: first[name] for name in (*_CONDITIONS, "documents")},
        points=[_point_of(row) for row in rows],
        curves=curves,
    )


def _point_of(row: _Row) -> MeasuredPoint:
    return MeasuredPoint(
        **{name: row[name] for name in (*_POINT, "texts")},
        documents=row["scored"],
        scores=dict(row["scores"]),
        savings={name: value for name in SAVING_NAMES if (value := row[f"saved_{name}"]) is not None},
        flops={phase: value for phase in MATCH_PHASES if (value := row[f"flops_{phase}"]) is not None},
    )


def _training(one: MeasuredTraining) -> _Row:
    target = one.target or {}
    return {
        "training": one.key,
        "method": one.method,
        "seed": one.seed,
        "base": None if one.base is None else one.base.key,
        **{name: (one.cost or {}).get(name) for name in _COST},
        **{f"target_{name}": target.get(name) for name in ("axis", "saving", "tokens", "whole_layers")},
        "target_priced": list(target["priced"].items()) if target else None,
        **{name: one.facts.get(name) for name in _FACTS},
        "steps": one.steps,
        "losses": one.losses,
    }


def _training_of(row: _Row, known: Mapping[str, MeasuredTraining]) -> MeasuredTraining:
    cost = {name: row[name] for name in _COST}
    target = {name: row[f"target_{name}"] for name in ("axis", "saving", "tokens", "whole_layers")}
    has_target = row["target_priced"] is not None
    if has_target and (None in (target["axis"], target["saving"], target["tokens"])):
        raise ValueError("a target has its axis, its saving and its tokens")
    return MeasuredTraining(
        key=row["training"],
        method=row["method"],
        seed=row["seed"],
        base=None if row["base"] is None else known[row["base"]],
        cost=None if None in cost.values() else cost,
        target=target | {"priced": dict(row["target_priced"])} if has_target else None,
        facts={name: row[name] for name in _FACTS if row[name] is not None},
        steps=row["steps"],
        losses=row["losses"],
    )


def _curve(rows: Sequence[_Row]) -> TimeCurve:
    return TimeCurve(tuple((row["saved_tokens"], row["saved_time"]) for row in rows), rows[0]["plain_ms"])


def _write_documents(file: Path, documents: Sequence[Documents]) -> None:
    import pandas
    import pyarrow

    parts = [
        {"point": at, "document": one.numbers, "log_likelihood": one.log_likelihood, "size_bytes": one.size_bytes}
        | dict(one.scores)
        for at, one in enumerate(documents)
    ]
    frame = pandas.concat(map(pandas.DataFrame, parts))
    schema = _schema({**dict.fromkeys(frame.columns, "number?"), **_COLUMNS[DOCUMENTS]})
    table = pyarrow.Table.from_pandas(frame, schema, preserve_index=False)  # NaN becomes null
    _write(file, table.replace_schema_metadata())  # without pandas' description of the frame


def _documents(file: Path) -> dict[int, Documents]:
    """Read the document scores of every point, by the row number of the point."""
    table = _table(file)
    # A missing value becomes NaN.
    columns = {name: table[name].to_numpy() for name in table.column_names}
    point = columns.pop("point")
    numbers, log_likelihood, size_bytes = (columns.pop(name) for name in ("document", "log_likelihood", "size_bytes"))
    starts = np.flatnonzero(np.diff(point, prepend=-1))  # first row of each point
    found: dict[int, Documents] = {}
    for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(point)], strict=True):
        here = slice(first, last)
        if int(point[first]) in found:
            raise ValueError(f"{DOCUMENTS}: the documents of a point must be in adjacent rows")
        found[int(point[first])] = Documents(
            tuple(numbers[here].tolist()),
            {name: values[here] for name, values in columns.items()},
            log_likelihood[here],
            size_bytes[here],
        )
    return found


def _schema(columns: Mapping[str, str]) -> pyarrow.Schema:
    import pyarrow

    number = pyarrow.float64()
    types = {
        "text": pyarrow.string(),
        "whole": pyarrow.int64(),
        "number": number,
        "numbers": pyarrow.list_(number),
        "by name": pyarrow.map_(pyarrow.string(), number),
        "flag": pyarrow.bool_(),
    }
    return pyarrow.schema([(name, types[kind.rstrip("?")]) for name, kind in columns.items()])


def _write_rows(file: Path, rows: Sequence[_Row]) -> None:
    import pyarrow

    _write(file, pyarrow.Table.from_pylist(rows, _schema(_COLUMNS[file.name])))


def _write(file: Path, table: pyarrow.Table) -> None:
    from pyarrow import parquet

    parquet.write_table(table, file, compression="zstd", compression_level=19)


def _rows(file: Path) -> list[_Row]:
    found: list[_Row] = _table(file).to_pylist()
    return found


def _table(file: Path) -> pyarrow.Table:
    """Read a file and check that its columns are there with the right types, and without missing values where there
    may be none. The file of documents may have further columns, one for each metric.
    """
    import pyarrow
    from pyarrow import parquet

    columns = dict(_COLUMNS[file.name])
    try:
        table = parquet.read_table(file)
        if file.name == DOCUMENTS:
            columns |= dict.fromkeys(table.column_names, "number?") | columns
        schema = _schema(columns)
        for name in [one for one in columns if columns[one].endswith("?") and one not in table.column_names]:
            # The version that wrote the entry did not have this column.
            table = table.append_column(name, pyarrow.nulls(len(table), schema.field(name).type))
        # A cast to a column that may not be null fails if a value is missing.
        strict = [one.with_nullable(columns[one.name].endswith("?")) for one in schema]
        table = table.select(list(columns)).cast(pyarrow.schema(strict))
        if infinite := [name for name in columns if not _is_finite(table[name])]:
            raise ValueError(f"{infinite[0]} is a finite number")
        return table
    except (OSError, KeyError, ValueError, pyarrow.ArrowException) as error:
        raise EnvironmentProblem(
            f"{file.name} is a Parquet file with the columns {', '.join(columns)}, but it cannot be read as one "
            f"({one_line(message_of(error), 300)}). Submit the run again."
        ) from error


def _is_finite(column: pyarrow.ChunkedArray) -> bool:
    from pyarrow import compute

    # Missing values are skipped; with `min_count=0` a column that has no others counts as finite.
    return column.type != "double" or bool(compute.all(compute.is_finite(column), min_count=0).as_py())
