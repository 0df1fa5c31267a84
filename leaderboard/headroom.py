"""Whether there is anything to decide on a task: what `adaptive-bench headroom` found, kept beside a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adaptive_bench.cli.headroom_table import verdict
from adaptive_bench.store.atomic import json_text
from adaptive_bench.store.digest import sealed, unsealed

from .headroom_form import check_task
from .plain import plain
from .rows import LARGEST_FILE_BYTES, Rejected

_KEYS = ("kind", "version", "tasks")
FILE_NAME = "headroom.json"  # of a run or an entry, as `headroom --output` writes it


def headroom(folders: Sequence[Path], tasks: Collection[str]) -> Iterator[tuple[str, str]]:
    """Of each of the tasks that a record is about, its name and one sentence; of each record that cannot be read, the
    file's name and why. Texts may hold anything.
    """
    for folder in folders:
        if not (folder / FILE_NAME).is_file():
            continue
        try:
            found = [(task, text) for task, text in _read(folder / FILE_NAME)[1] if task in tasks]
        except Rejected as why:
            found = [(f"{folder.name}/{FILE_NAME}", f"Left out: {why}.")]
        yield from found


def for_entry(path: Path) -> bytes:
    """A record without what it says of the machine: paths of model and data.

    Raises:
        Rejected: It is none.
    """
    record = _read(path)[0]
    return sealed(json_text({key: record[key] for key in _KEYS if key in record})).encode()


def check_headroom(folder: Path, metrics: Mapping[str, Collection[str]]) -> None:
    """Refuse a record beside a table that is none.

    Args:
        metrics: By task of the table its metrics there.

    Raises:
        Rejected: It cannot be read, holds more than `for_entry` leaves, or what `headroom` cannot have found.
    """
    if not (folder / FILE_NAME).is_file():
        return
    record = _read(folder / FILE_NAME)[0]
    if more := record.keys() - _KEYS:
        raise Rejected(f"{FILE_NAME}: {plain(min(more), 40)} is no key of an entry's")
    with _well_formed(folder / FILE_NAME):
        for about in record["tasks"]:
            check_task(about, metrics)


def _read(path: Path) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """A record, and its tasks with what it says of them."""
    with _well_formed(path):
        if path.is_symlink() or path.stat().st_size > LARGEST_FILE_BYTES:
            raise Rejected(f"{path.name} is a file of at most {LARGEST_FILE_BYTES // 1_000_000} MB")
        record = unsealed(path.read_bytes())
        return record, [(str(task["task"]), verdict(task)) for task in record["tasks"]]


@contextmanager
def _well_formed(path: Path) -> Iterator[None]:
    """Within the block what a record lacks, or has of another kind, is a reason to refuse it."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError, OSError) as error:
        if isinstance(error, Rejected):
            raise
        raise Rejected(f"{path.name} is not what `headroom --output` writes ({type(error).__name__})") from error
