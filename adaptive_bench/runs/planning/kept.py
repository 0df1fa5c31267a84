"""Choices that depend on the machine, kept beside the records: whoever goes on with a run finds the first one."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store import atomic


def kept(file: Path, choose: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a JSON file says; where there is none, or none that can be read, what is chosen now, which is written to it.

    Of several who choose at the same time the first one's stays. What cannot be written is chosen again next time.
    """
    if (found := _read(file)) is None:
        chosen = choose()
        if (found := _read(file)) is None:
            found = chosen
            with suppress(EnvironmentProblem):
                atomic.write_json(file, chosen)
    return found


def _read(file: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        found = json.loads(file.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    return None
