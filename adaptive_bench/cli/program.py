"""What a user types for this program: the commands that are printed can be given as they stand."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

NAME = "adaptive-bench"


def pasteable(command: str) -> str:
    """A command that begins with `adaptive-bench`, with the words that this process was started by in its place."""
    return _program() + command.removeprefix(NAME)


def _program() -> str:
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m adaptive_bench"
    found = shutil.which(NAME)
    if (
        started.name != NAME
        or started.parent == Path()
        or (found is not None and started.resolve() == Path(found).resolve())
    ):
        return NAME
    return shlex.quote(str(started))
