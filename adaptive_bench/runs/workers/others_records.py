"""The records of others are none of a plugin's business: in its process they cannot be written, moved or removed."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from adaptive_bench.errors import PluginFault
from adaptive_bench.model.stored_calibration import FOLDER as CALIBRATIONS

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "os.chmod"}
_CHANGES |= {"shutil.rmtree", "shutil.move"}


def protect(records: Path, cell: Path, sweeps: Collection[Path], plugin: str) -> None:
    """From now on this process changes no record but its own. It cannot be undone; it holds for what Python does, other
    programs that are started are not seen.

    Args:
        records: Folder of all records.
        cell: The record whose training is done here or evaluated.
        sweeps: Records of the sweeps that are done here; none in a training, whose whole record is its own. Beside a
            training that is evaluated files may be added, and what calibration found is kept with its model.
        plugin: Whose code runs here, as an error names it.
    """
    everything, trained, evaluations = _prefix(records), _prefix(cell), _prefix(cell / "eval")
    own = tuple(map(_prefix, (*sweeps, cell / "checkpoint" / CALIBRATIONS) if sweeps else (cell,)))

    def is_others(event: str, path: str) -> bool:
        inside = _prefix(path)
        if not inside.startswith(everything) or inside.startswith(own):
            return False
        if event == "os.mkdir" and (inside == everything or os.path.isdir(path)):  # noqa: PTH112 - nothing is lost
            return False
        adds = inside.startswith(trained) and not os.path.lexists(path)
        return not adds or (inside.startswith(evaluations) and inside != evaluations)

    def look(event: str, values: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(values[2], int) and values[2] & _WRITES:
            paths = values[:1]
        elif event in _CHANGES:
            paths = values[:2]
        else:
            return
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike) and is_others(event, os.fsdecode(path)):
                raise PluginFault(
                    f"A plugin leaves the records of others as they are, but {plugin} was about to change "
                    f"{os.fsdecode(path)!r} ({event}). Write elsewhere."
                )

    sys.addaudithook(look)


def _prefix(path: str | Path) -> str:
    return os.path.abspath(path) + os.sep  # noqa: PTH100 - looks at no file, which would be an event again
