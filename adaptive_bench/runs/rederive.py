"""Is a table what its records say? Made again from them and compared row by row; nothing is trained or measured."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.runs.outcome.table import make_table
from adaptive_bench.runs.planning.manifest import of_records, plan_of
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.work.left import left
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.packing import unpack

_ROUNDING = 1e-9  # another machine sums in another order
_PLACE = ("method", "semantics", "task", "metric", "axis", "phase", "level", "timing")
_Row = Mapping[str, Any]


@dataclass(frozen=True)
class Rederived:
    """A table beside the one its records give.

    Attributes:
        rows: How many rows the records give.
        differences: Rows that are not the same in both, in words.
    """

    rows: int
    differences: tuple[str, ...]


def rederive(config: RunConfig, packed: Path, rows: Sequence[_Row]) -> Rederived:
    """Make the table of a run again.

    Args:
        config: The run; its output folder is not touched.
        packed: Its records, as `pack` wrote them.
        rows: Its table, as it is in `table.json`.

    Raises:
        EnvironmentProblem: The records are damaged, or measured points are missing among them.
        UsageError: The config names something that does not exist here.
    """
    with tempfile.TemporaryDirectory() as folder:
        unpack(packed, Path(folder))
        there = config.model_copy(update={"out": Path(folder)})
        whole = plan_of(there, of_records(there, _keys(Path(folder))))
        if missing := [*_absent(whole), *map(str, left(whole))]:
            raise EnvironmentProblem(
                f"A table is made again from all its records, but {len(missing)} of them are missing in "
                f"{packed.name}, the first: {missing[0]}. Submit the finished run again with --records."
            )
        now = json.loads(atomic.json_text([row.to_json() for row in make_table(whole)[0]]))
    return Rederived(len(now), tuple(_differences(rows, now)))


def _absent(whole: Plan) -> list[str]:
    """What a configuration asks for and no record says anything of."""
    known = {(sweep.spec, sweep.task, sweep.training.seed) for sweep in whole.sweeps}
    config = whole.config
    return [
        f"{spec} on {name}, seed {seed}"
        for spec in map(MethodSpec.parse, config.methods)
        for name in (find_task(task).name for task in config.tasks)
        for seed in config.seeds
        if (spec, name, seed) not in known
    ]


def _keys(out: Path) -> list[str]:
    return sorted(folder.name for folder in (out / "records").iterdir())


def _differences(said: Sequence[_Row], now: Sequence[_Row]) -> list[str]:
    claimed, found = ({tuple(str(row.get(key)) for key in _PLACE): row for row in table} for table in (said, now))
    columns = {key for row in said for key in row}  # a table of an earlier version has fewer
    told = [f"{_named(place)}: not in the records" for place in claimed.keys() - found.keys()]
    told += [f"{_named(place)}: not in the table" for place in found.keys() - claimed.keys()]
    for place, row in found.items():
        if (other := claimed.get(place)) is not None:
            wrong = [key for key in columns if not _same(row.get(key), other.get(key))]
            told += [f"{_named(place)}: {key} {other.get(key)}, by the records {row.get(key)}" for key in sorted(wrong)]
    return told


def _named(place: tuple[str, ...]) -> str:
    return ", ".join(part for part in place if part != "None")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
    return bool(one == other)
