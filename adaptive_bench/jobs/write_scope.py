"""The records of others are none of a plugin's business: in its process they cannot be written, moved or removed."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_bench.errors import PluginFault

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "os.chmod"}
_CHANGES |= {"shutil.rmtree", "shutil.move"}


@dataclass(frozen=True)
class WriteScope:
    """Where a job may write among records.

    Attributes:
        records: Folder of all records.
        own: What it may change.
        additions: Folder in which it may also make new files ...
        closed: ... but not in this one.
    """

    records: Path
    own: tuple[Path, ...]
    additions: Path
    closed: Path


def protect(scope: WriteScope, plugin: str) -> None:
    """From now on this process changes no record but its own. It cannot be undone; it holds for what Python does, other
    programs that are started are not seen.

    Args:
        plugin: Whose code runs here, as an error names it.
    """
    everything, additions, closed = map(_prefix, (scope.records, scope.additions, scope.closed))
    own = tuple(map(_prefix, scope.own))

    def is_others(event: str, path: str) -> bool:
        inside = _prefix(path)
        if not inside.startswith(everything) or inside.startswith(own):
            return False
        if event == "os.mkdir" and (inside == everything or os.path.isdir(path)):  # noqa: PTH112 - nothing is lost
            return False
        adds = inside.startswith(additions) and not os.path.lexists(path)
        return not adds or (inside.startswith(closed) and inside != closed)

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
