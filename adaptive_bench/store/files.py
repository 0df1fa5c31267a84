"""JSON files of a record: read as they were written, or not at all.

A file ends with a digest of what it says (`digest.sealed`). One without is taken for changed, whoever wrote it: else
whoever removes the digest could change the rest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store.digest import is_intact, unsealed
from adaptive_bench.store.schema import check_schema

# They hold no result: how long a training took, and that its weights are elsewhere.
NOT_SEALED = ("timing.json", "without_weights.json")


def read_file(path: Path) -> dict[str, Any] | None:
    """What a file says, or `None` if it is not there or is not what was written.

    Raises:
        EnvironmentProblem: A newer version wrote it, or it may not be read.
    """
    content = _content(path)
    return None if content is None else _parsed(path, content)


def look(folder: Path, wanted: Sequence[str]) -> tuple[list[str], dict[str, dict[str, Any]], list[str]]:
    """One pass over a record, for those who look at thousands: each file is read once, and parsed only if wanted.

    Returns:
        All names in the folder, what the wanted files say (as `read_file` has it), and the names of damaged files.

    Raises:
        EnvironmentProblem: As `read_file`.
    """
    names = sorted(os.listdir(folder))  # noqa: PTH208 - a path for each name takes longer than reading it
    said, damaged = {}, []
    for name in names:
        if not name.endswith(".json") or name in NOT_SEALED:
            continue
        if (content := _content(os.path.join(folder, name))) is None:  # noqa: PTH118
            continue
        values = _parsed(folder / name, content) if name in wanted else None
        if values is not None:
            said[name] = values
        elif name in wanted or not is_intact(content):
            damaged.append(name)
    return names, said, damaged


def _content(path: Path | str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - as above
            return stream.readall()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise EnvironmentProblem(
            f"A record must be readable, but {str(path)!r} is not: {error.strerror or error}. Change its permissions, "
            "or choose another --out."
        ) from error


def _parsed(path: Path, content: bytes) -> dict[str, Any] | None:
    try:
        values = unsealed(content)
    except (ValueError, RecursionError):
        return None
    check_schema(values, path)
    return values
