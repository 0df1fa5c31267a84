"""Names for what is being written: each says which process writes it, so that what a killed one left can be told apart.

`.<name>.<host>-<process>-<start>-<number>.tmp`
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import os
import platform
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

SUFFIX = ".tmp"
_WRITER = re.compile(r"\.([0-9a-f]{8})-(\d+)-([0-9a-f]{8})-\d+\.tmp$")
_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
_START = os.urandom(4).hex()  # a process number comes again, in a container at every start
_LONGEST = 100  # characters of a name that a temporary one repeats
_ABANDONED_S = 24 * 3600  # on another machine nobody can be asked
_numbers = itertools.count()


def temporary_name(target: Path, folder: Path) -> Path:
    """A new name in `folder` for what will be at `target`.

    Beside the target, what killed processes were writing there is removed: it is written again now.
    """
    start = f".{target.name[:_LONGEST]}."
    if folder == target.parent:
        for path in folder.glob(f"{glob.escape(start)}*{SUFFIX}"):
            if _is_abandoned(path):
                _discard(path)
    return folder / f"{start}{_HOST}-{os.getpid()}-{_START}-{next(_numbers)}{SUFFIX}"


def _discard(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _now(folder: Path) -> float:
    """The time by the clock that files in a folder are dated with: another machine's may be right where ours is not."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(b".")
        probe.flush()
        return os.fstat(probe.fileno()).st_mtime


def _is_abandoned(path: Path) -> bool:
    """Whether nobody writes a temporary file any more."""
    if (writer := _WRITER.search(path.name)) is None:
        return False
    host, process, start = writer.groups()
    if host != _HOST:
        try:
            return _now(path.parent) - path.stat().st_mtime > _ABANDONED_S
        except OSError:
            return False
    if int(process) == os.getpid():
        return start != _START
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
