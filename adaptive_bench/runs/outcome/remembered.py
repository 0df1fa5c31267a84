"""What was found in a group of sweeps, between a table and the memory of its run: with a digest, as whoever edits a
line of `remembered.jsonl` would edit the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from adaptive_bench.runs.planning.memory import Memory
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.store.keys import canonical


def remember(memory: Memory, sweeps: Sequence[DialEvaluation], found: Mapping[str, Any]) -> None:
    """Keep plain values for the next table."""
    memory.put(sweeps, {"sha256": _digest(sweeps, found), "found": found})


def recalled(memory: Memory, sweeps: Sequence[DialEvaluation]) -> dict[str, Any] | None:
    """What was kept of some sweeps; `None` where that is nothing, or not what was written."""
    known = memory.group(sweeps)
    found = known.get("found") if isinstance(known, dict) else None
    return found if isinstance(found, dict) and known.get("sha256") == _digest(sweeps, found) else None


def _digest(sweeps: Sequence[DialEvaluation], found: Mapping[str, Any]) -> str:
    names = [sweep.folder.name for sweep in sweeps]
    return hashlib.sha256(canonical([names, found]).encode()).hexdigest()
