"""The files of this distribution whose code makes results. One list, for everybody who asks whether code is other code:
the digest beside a record (`code_digest`), the spot check that compares such digests, and what a run remembers.

The core is shared by all methods. A method is its file with the helpers it imports, a task its Python and its YAML: in
a checkout these lie beside the core, in an installed package below it.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from adaptive_bench import registry
from adaptive_bench.closure import own_files

# Of the core, what moves no record. Plugins' folders are here as they lie below it where the package is installed.
_NO_RESULT = {"cli", "configs", "docs", "leaderboard", "methods", "store/results.py", "tables", "tasks", "testing"}
_NO_RESULT |= {"tuning"}
_SOURCE = ("*.py", "*.yaml")


def core() -> list[Path]:
    """What every training and every evaluation runs through."""
    home = _home("adaptive_bench")
    return [
        home / file
        for file in (path.relative_to(home) for path in _below(home, "*.py"))
        if _NO_RESULT.isdisjoint((file.parts[0], file.as_posix()))
    ]


def of_tasks() -> list[Path]:
    """What all tasks are made of: how they ask, what they teach and take for right."""
    return _below(_home("adaptive_bench.tasks"), *_SOURCE)


def of_method(name: str) -> list[Path]:
    """A method's own: its file and all helpers and methods it is built on; nothing of a plugin.

    Args:
        name: It is registered under.
    """
    file = registry.file_of("methods", name)
    return [] if file is None or registry.is_foreign("methods", name) else sorted(own_files(file))


def everything() -> list[Path]:
    """All of these, and the code that makes tables and texts of records."""
    homes = [
        _home("adaptive_bench"),
        *(_home(f"adaptive_bench.{part}") for part in ("methods", "tasks", "leaderboard")),
    ]
    return sorted({path for home in homes for path in _below(home, *_SOURCE)})


@cache
def _home(package: str) -> Path:
    found = find_spec(package)
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def _below(home: Path, *patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in home.rglob(pattern))
