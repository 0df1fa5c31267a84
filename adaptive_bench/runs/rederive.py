"""Is a table what its records say? Made again from them and compared row by row; nothing is trained or measured."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs.outcome.differences import differences
from adaptive_bench.runs.outcome.table import make_table
from adaptive_bench.runs.planning.manifest import of_records, plan_of
from adaptive_bench.runs.work.left import absent, left
from adaptive_bench.store import atomic
from adaptive_bench.store.files import read_file
from adaptive_bench.store.manifest import FILE as LIST
from adaptive_bench.store.manifest import Manifest, from_json
from adaptive_bench.store.packing import unpack
from adaptive_bench.store.results import digest_in_entry

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
    """

    rows: int
    differences: tuple[str, ...]
    unprojected: tuple[str, ...] = ()
    sealed: bool = False


def rederive(config: RunConfig, packed: Path, rows: Sequence[_Row]) -> Rederived:
    """Make the table of a run again.

    Args:
        config: The run; its output folder is not touched.
        packed: Its records, as `pack` wrote them.
        rows: Its table, as it is in `table.json`.

    Raises:
        EnvironmentProblem: The records are damaged or are not those of the entry, or measured points are missing among
            them.
        UsageError: The config names a task that does not exist here.
    """
    with tempfile.TemporaryDirectory() as folder:
        unpack(packed, Path(folder), digest_in_entry(packed))
        listed = _list_beside(packed, Path(folder))
        if listed is not None:
            replace(listed, timings={}).check()  # of times an archive has none
        there = config.model_copy(update={"out": Path(folder)})
        whole = plan_of(there, of_records(there, _keys(Path(folder))))
        if missing := [*absent(whole), *map(str, left(whole))]:
            raise EnvironmentProblem(
                f"A table is made again from all its records, but {len(missing)} of them are missing in "
                f"{packed.name}, the first: {missing[0]}. Submit the finished run again with --records."
            )
        now = json.loads(atomic.json_text([row.to_json() for row in make_table(whole)[0]]))
    methods = {str(sweep.spec): sweep.spec.name for sweep in whole.sweeps}
    away = {text for text, name in methods.items() if name not in registry.names("methods")}
    said, found = ([_comparable(row, away) for row in table if _is_comparable(row, away)] for table in (rows, now))
    sealed = listed is not None and bool(listed.seals)
    return Rederived(len(found), tuple(differences(said, found)), tuple(sorted(away)), sealed)


def _list_beside(packed: Path, out: Path) -> Manifest | None:
    """The list of its records that an entry has, for records that lie in an output folder."""
    about = read_file(packed.with_name(LIST))
    return None if about is None else from_json(about, out)


def _is_comparable(row: _Row, away: Collection[str]) -> bool:
    return row["axis"] != "projected" or _spec_of(row) not in away


def _comparable(row: _Row, away: Collection[str]) -> _Row:
    """A row without what it says of a projection, where the method is not here."""
    return row if _spec_of(row) not in away else {key: value for key, value in row.items() if key not in _PROJECTED}


def _spec_of(row: _Row) -> str:
    return str(row["method"]) + ("" if row["semantics"] == "bench" else f"@{row['semantics']}")


def _keys(out: Path) -> list[str]:
    return sorted(folder.name for folder in (out / "records").iterdir())
