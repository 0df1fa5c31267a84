"""Reads what `adaptive-bench headroom` found: whether there is anything to decide on a task."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from adaptive_bench.cli.headroom import verdict
from adaptive_bench.store.atomic import json_text

from .row import Rejected

_KEYS = ("kind", "version", "tasks")
FILE_NAME = "headroom.json"  # in the folder of a run or an entry, as `headroom --output` writes it


def headroom(folders: Sequence[Path], tasks: Collection[str]) -> Iterator[tuple[str, str]]:
    """Pairs of a task's name and one sentence, or of a record's file name and why it cannot be read.

    The texts come from outside and may hold anything.

    Args:
        folders: Folders of runs and entries.
        tasks: The tasks to report.
    """
    for folder in folders:
        try:
            found = [(task, text) for task, text in read_headroom(folder) if task in tasks]
        except Rejected as why:
            found = [(f"{folder.name}/{FILE_NAME}", f"Left out: {why}.")]
        yield from found


def for_entry(path: Path) -> bytes:
    """The content of a record without the paths of model and data on this machine.

    Raises:
        Rejected: The file is not such a record.
    """
    read_headroom(path.parent)
    record = json.loads(path.read_bytes())
    return json_text({key: record[key] for key in _KEYS if key in record}).encode()


def read_headroom(folder: Path) -> list[tuple[str, str]]:
    """Pairs of a task and a sentence from the record in a folder; empty if there is no record.

    Raises:
        Rejected: The file is not such a record.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return []
    try:
        return [(str(task["task"]), verdict(task)) for task in json.loads(path.read_bytes())["tasks"]]
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError, OSError) as error:
        raise Rejected(f"{FILE_NAME} is not what `headroom --output` writes ({type(error).__name__})") from error
