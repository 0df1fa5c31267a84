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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from adaptive_bench.errors import EnvironmentProblem, message_of, one_line
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluation import MATCH_PHASES, SAVING_NAMES
from adaptive_bench.store.measured import (
    Documents,
    MeasuredPoint,
    MeasuredSweep,
    MeasuredTraining,
    Measurements,
    Text,
    TimeCurve,
)

POINTS, DOCUMENTS, TEXTS = "points.parquet", "documents.parquet", "texts.parquet"
TRAINING, TIMINGS = "training.parquet", "timings.parquet"
# Columns that hold a value of a point as it is.
_POINT = ("asked_saving", "dial", "seconds", "bytes_per_token", "projected_shape", "attention_executed", "mlp_executed")
_SWEEP = ("method", "task", "seed", "training", "target", "split", "variant")  # what the points of a sweep share
_CONDITIONS = ("model", "backbone", "recipe", "task_version", "shots", "asked", "contents", "definition")
_COST = ("tokens", "flops", "parameters_added")
_FACTS = ("learning_rate", "order_sha256", "seconds", "made_with")
_TEXT, _WHOLE, _NUMBER = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
_NUMBERS, _BY_NAME = pyarrow.list_(_NUMBER), pyarrow.map_(_TEXT, _NUMBER)
_Row = dict[str, Any]


def _columns(kind: pyarrow.DataType, *names: str, missing: bool = False) -> list[pyarrow.Field]:
    """Columns of a type; `missing` says whether values may be missing."""
    return [pyarrow.field(name, kind, nullable=missing) for name in names]


_SCHEMAS = {
    POINTS: [
        *_columns(_TEXT, "method", "task", "training", "split", "variant", "made_with"),
        *_columns(_WHOLE, "seed", "documents"),
        *_columns(_NUMBER, "asked_saving", "dial", "seconds"),
        *_columns(_NUMBERS, "levels", "attention_executed", "mlp_executed"),
        *_columns(_BY_NAME, "scores"),
        *_columns(_TEXT, "eligible", "projected_shape", "documents_sha256", *_CONDITIONS[:4], missing=True),
        *_columns(_WHOLE, "shots", missing=True),
        *_columns(_TEXT, *_CONDITIONS[5:], missing=True),
        *_columns(_NUMBER, "target", "bytes_per_token", missing=True),
        *_columns(_NUMBER, *(f"saved_{name}" for name in SAVING_NAMES), missing=True),
        *_columns(_NUMBER, *(f"flops_{phase}" for phase in MATCH_PHASES), missing=True),
    ],
    # Besides, a column for each metric.
    DOCUMENTS: [
        *_columns(_WHOLE, "point", "document"),
        *_columns(_NUMBER, "log_likelihood", "size_bytes", missing=True),
    ],
    TEXTS: [
        *_columns(_WHOLE, "point", "document"),
        *_columns(_TEXT, "target", "written"),
        *_columns(_NUMBER, "correct", missing=True),
    ],
    TRAINING: [
        *_columns(_TEXT, "training", "method"),
        *_columns(_WHOLE, "seed"),
        *_columns(_TEXT, "base", "order_sha256", "made_with", "target_axis", missing=True),
        *_columns(_NUMBER, *_COST, "learning_rate", "seconds", "target_saving", "target_tokens", missing=True),
        *_columns(_BY_NAME, "target_priced", missing=True),
        *_columns(pyarrow.bool_(), "target_whole_layers", missing=True),
        *_columns(_NUMBERS, "steps", "losses"),
    ],
    TIMINGS: [
        *_columns(_TEXT, "method", "setting"),
        *_columns(_NUMBER, "saved_tokens", "saved_time"),
        *_columns(_NUMBER, "plain_ms", missing=True),
    ],
}


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

    parts = [
        {"point": at, "document": one.numbers, "log_likelihood": one.log_likelihood, "size_bytes": one.size_bytes}
        | dict(one.scores)
        for at, one in enumerate(documents)
    ]
    frame = pandas.concat(map(pandas.DataFrame, parts))
    table = pyarrow.Table.from_pandas(frame, _with_metrics(frame.columns), preserve_index=False)  # NaN becomes null
    _write(file, table.replace_schema_metadata())  # without pandas' description of the frame


def _with_metrics(names: Iterable[str]) -> pyarrow.Schema:
    """Return the columns of a file of documents, of which those that are not known are metrics."""
    known = _SCHEMAS[DOCUMENTS]
    metrics = [name for name in names if name not in {one.name for one in known}]
    return pyarrow.schema([*known, *_columns(_NUMBER, *metrics, missing=True)])


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


def _write_rows(file: Path, rows: Sequence[_Row]) -> None:
    _write(file, pyarrow.Table.from_pylist(rows, pyarrow.schema(_SCHEMAS[file.name])))


def _write(file: Path, table: pyarrow.Table) -> None:
    # Every column is written as one that may lack values.
    loose = table.cast(pyarrow.schema([one.with_nullable(True) for one in table.schema]))
    parquet.write_table(loose, file, compression="zstd", compression_level=19)


def _rows(file: Path) -> list[_Row]:
    found: list[_Row] = _table(file).to_pylist()
    return found


def _table(file: Path) -> pyarrow.Table:
    """Read a file and check that its columns are there with the right types, and without missing values where there
    may be none.
    """
    from pyarrow import compute  # takes longer to import than the rest of pyarrow

    schema = pyarrow.schema(_SCHEMAS[file.name])
    try:
        table = parquet.read_table(file)
        schema = _with_metrics(table.column_names) if file.name == DOCUMENTS else schema
        # Adds the columns, without values, that the version that wrote the entry did not have.
        table = pyarrow.concat_tables([schema.empty_table(), table], promote_options="permissive")
        table = table.select(schema.names).cast(schema)  # fails if a value is missing that may not be
        # Missing values are skipped; with `min_count=0` a column that has no others counts as finite.
        numbers = [name for name in schema.names if table[name].type == _NUMBER]
        finite = {name: compute.all(compute.is_finite(table[name]), min_count=0).as_py() for name in numbers}
        if infinite := [name for name in numbers if not finite[name]]:
            raise ValueError(f"{infinite[0]} is a finite number")
        return table
    except (OSError, KeyError, ValueError, pyarrow.ArrowException) as error:
        raise EnvironmentProblem(
            f"{file.name} is a Parquet file with the columns {', '.join(schema.names)}, but it cannot be read as one "
            f"({one_line(message_of(error), 300)}). Submit the run again."
        ) from error
