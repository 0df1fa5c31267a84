"""Whether there is anything to decide on a task: what `adaptive-bench headroom` found, kept beside a table."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from adaptive_bench.cli.headroom import verdict
from adaptive_bench.store.atomic import json_text

from .row import Rejected

_KEYS = ("kind", "version", "tasks")
FILE_NAME = "headroom.json"  # of a run or an entry, as `headroom --output` writes it


def headroom(folders: Sequence[Path], tasks: Collection[str]) -> Iterator[tuple[str, str]]:
    """Of each of the tasks that a record is about, its name and one sentence; of each record that cannot be read, the
    file's name and why. Texts may hold anything.
    """
    for folder in folders:
        try:
            found = [(task, text) for task, text in read_headroom(folder) if task in tasks]
        except Rejected as why:
            found = [(f"{folder.name}/{FILE_NAME}", f"Left out: {why}.")]
        yield from found


def for_entry(path: Path) -> bytes:
    """A record without what it says of the machine: paths of model and data.

    Raises:
        Rejected: It is none.
    """
    read_headroom(path.parent)
    record = json.loads(path.read_bytes())
    return json_text({key: record[key] for key in _KEYS if key in record}).encode()


def read_headroom(folder: Path) -> list[tuple[str, str]]:
    """The tasks of the record in a folder, each with what it says of it; none where there is no record.

    Raises:
        Rejected: It is none.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return []
    try:
        return [(str(task["task"]), verdict(task)) for task in json.loads(path.read_bytes())["tasks"]]
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError, OSError) as error:
        raise Rejected(f"{FILE_NAME} is not what `headroom --output` writes ({type(error).__name__})") from error
