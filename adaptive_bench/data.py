"""Reads data sets: from a folder of local JSON lines if one is given, else from the Hugging Face hub."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets

from adaptive_bench.config import DATA_VARIABLE
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.task import ExampleRequest

Row = Mapping[str, Any]
# One training row in so many is kept for calibration.
_CALIBRATION_SHARE = 10


@dataclass(frozen=True)
class Source:
    """Where a data set lives.

    Attributes:
        hub_id: Name on the Hugging Face hub.
        folder: Name of the folder with `<split>.jsonl` or `<split>.jsonl.gz` in the data folder.
        fields: Fields every row must have.
        configuration: Configuration on the hub, if the data set has several.
    """

    hub_id: str
    folder: str
    fields: tuple[str, ...]
    configuration: str | None = None


def read_rows(source: Source, split: str, data_dir: Path | str | None = None) -> list[dict[str, Any]]:
    """All rows of a split.

    Args:
        source: The data set.
        split: `train`, `validation` or `test`.
        data_dir: Folder that holds the data set's folder; `None` for `ADAPTIVE_BENCH_DATA`, or the hub if that is not
            set. A folder that is given is used or complained about, never passed over.

    Raises:
        EnvironmentProblem: The data cannot be read, or rows lack fields.
    """
    data_dir = data_dir or os.environ.get(DATA_VARIABLE) or None
    try:
        if data_dir is None:
            rows = datasets.load_dataset(source.hub_id, source.configuration, split=split)
        else:
            rows = datasets.load_dataset(
                "json", data_files=str(_local_file(source, split, Path(data_dir))), split="train"
            )
    except (OSError, datasets.exceptions.DatasetsError) as error:
        where = f"{source.hub_id} from the Hugging Face hub" if data_dir is None else f"{source.folder} in {data_dir}"
        raise EnvironmentProblem(
            f"The split {split!r} of {where} cannot be read: {' '.join(str(error).split())}. Set --data-dir or "
            f"{DATA_VARIABLE} to a folder with {source.folder}/{split}.jsonl, or connect to the hub."
        ) from error
    if missing := [field for field in source.fields if field not in rows.column_names]:
        raise EnvironmentProblem(
            f"Rows of {source.folder} have the fields {', '.join(source.fields)}, but {split!r} lacks "
            f"{', '.join(missing)} (found: {', '.join(rows.column_names)}). "
            f"Use the fields of {source.hub_id} on the hub."
        )
    found = rows.to_list()
    for number, row in enumerate(found, 1):
        if empty := [field for field in source.fields if row[field] is None or not str(row[field]).strip()]:
            raise EnvironmentProblem(
                f"Every row of {source.folder} has the fields {', '.join(source.fields)}, but in row {number} of "
                f"{split!r} "
                f"{' and '.join(empty)} is empty. Correct that row, or fetch the data again."
            )
    return found


def harness_splits(splits: Mapping[str, Iterable[Row]]) -> datasets.DatasetDict:
    """Splits in the form lm-eval expects of a task's `custom_dataset`."""
    return datasets.DatasetDict({name: datasets.Dataset.from_list(list(rows)) for name, rows in splits.items()})


def draw(rows: Iterable[dict[str, Any]], key: Callable[[Row], str], request: ExampleRequest) -> list[dict[str, Any]]:
    """The rows of a request: `count` of the split's rows in seeded order, or all of them if there are fewer.

    A tenth of the training rows, chosen by a hash of their key, is the calibration split; the rest is for training.
    The choice does not depend on seed, order or machine.
    """
    wanted = [row for row in rows if _is_calibration(key(row)) == (request.split == "calibration")]
    random.Random(request.seed).shuffle(wanted)
    return wanted[: request.count]


def _is_calibration(key: str) -> bool:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % _CALIBRATION_SHARE == 0


def _local_file(source: Source, split: str, data_dir: Path) -> Path:
    for suffix in (".jsonl", ".jsonl.gz"):
        path = data_dir / source.folder / f"{split}{suffix}"
        if path.is_file():
            return path.resolve()
    raise FileNotFoundError(f"there is no {source.folder}/{split}.jsonl or .jsonl.gz")
