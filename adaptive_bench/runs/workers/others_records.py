"""The records of others are none of a plugin's business: in its process they cannot be written, moved or removed."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from adaptive_bench.errors import PluginFault

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "os.chmod"}
_CHANGES |= {"shutil.rmtree", "shutil.move"}


def protect(records: Path, cell: Path, sweeps: Collection[Path], plugin: str) -> None:
    """From now on this process changes no record but its own. It cannot be undone; it holds for what Python does, other
    programs that are started are not seen.

    Args:
        records: Folder of all records.
        cell: The record whose training is done here or evaluated.
        sweeps: Records of the sweeps that are done here; in a training none.
        plugin: Whose code runs here, as an error names it.
    """
    everything, mine = _prefix(records), _prefix(cell)
    evaluations, own = _prefix(cell / "eval"), tuple(map(_prefix, sweeps))

    def is_others(path: str) -> bool:
        inside = os.path.abspath(path) + os.sep
        if not inside.startswith(everything) or inside == everything:
            return False
        if not inside.startswith(mine):
            return True
        return inside.startswith(evaluations) and inside != evaluations and not inside.startswith(own)

    def look(event: str, values: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(values[2], int) and values[2] & _WRITES:
            paths = values[:1]
        elif event in _CHANGES:
            paths = values[:2]
        else:
            return
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike) and is_others(os.fsdecode(path)):
                raise PluginFault(
                    f"A plugin leaves the records of others as they are, but {plugin} was about to change "
                    f"{os.fsdecode(path)!r} ({event}). Write elsewhere."
                )

    sys.addaudithook(look)


def _prefix(path: Path) -> str:
    return os.path.abspath(path) + os.sep
