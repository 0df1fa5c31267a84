"""What a board shows out of records: what each holds, its training curve, and what methods wrote and executed; and when
the records were made, which an entry is held to. Of a run it is read where the records lie; of an entry while its
archive is unpacked, to be kept with the values made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.store.files import files_of

from .provenance import records_shown, sweeps_of
from .samples import collected


def recorded(records: Sequence[Path]) -> dict[str, Any]:
    """In plain values: `records` as the page shows them; `samples`, see `samples.collected`; `since`, when the first
    and the last of them got the state that it has.
    """
    since = sorted(found for record in records for found in _since(record))
    return {
        "records": records_shown(records),
        "samples": collected(records),
        "since": [*since[:1], *since[-1:]],
    }


def _since(record: Path) -> Iterator[str]:
    for folder in (record, *(sweep for sweep, _ in sweeps_of(record))):
        status = files_of(folder).read("status.json") or {}
        if isinstance(status.get("since"), str):
            yield status["since"]
