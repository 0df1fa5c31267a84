"""What a board shows out of records: what each holds, its training curve, and what methods wrote and executed. Of a run
it is read where the records lie; of an entry while its archive is unpacked, to be kept with the values made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .provenance import records_shown
from .samples import collected


def recorded(records: Sequence[Path]) -> dict[str, Any]:
    """In plain values: `records` as the page shows them, and `samples`, see `samples.collected`."""
    return {"records": records_shown(records), "samples": collected(records)}
