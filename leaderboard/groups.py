"""Splits a board into groups whose rows can be compared: one model and one recipe each, featured groups first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adaptive_bench.registry import names
from adaptive_bench.tables.comparability import Conditions, differences

from .frame import Board
from .row import Row

FEWEST_SEEDS, FEWEST_DOCUMENTS, FEWEST_METHODS = 3, 100, 3
RULE = (
    f"A board is featured where at least {FEWEST_METHODS} methods were evaluated on at least {FEWEST_DOCUMENTS} "
    f"documents of every task with at least {FEWEST_SEEDS} seeds; all others are in the sandbox."
)


@dataclass(frozen=True)
class Group:
    """The rows measured on one model with one recipe.

    Attributes:
        key: Name of its files: letters, digits and hyphens.
        name: The model, with what distinguishes it from other groups on that model.
        featured: Whether `RULE` holds.
        board: A board of only its rows and folders.
    """

    key: str
    name: str
    featured: bool
    board: Board


def groups_of(board: Board) -> list[Group]:
    """The groups of a board, registered models (for demonstration) after all others, featured ones before others, and
    otherwise in the order of the rows; none without rows.
    """
    by_place: dict[tuple[str | None, str | None], list[Row]] = {}
    for row in board.rows:
        by_place.setdefault((row.conditions.backbone, row.conditions.recipe), []).append(row)
    some = (rows[0].conditions for rows in by_place.values())
    # Without what belongs to a task: groups differ in model and recipe only.
    apart = _apart([Conditions(one.model, one.backbone, one.recipe) for one in some])
    found = [
        Group(_key(number, name), name, _is_featured(rows), replace(board, rows=rows, folders=_folders(board, rows)))
        for number, (name, rows) in enumerate(zip(apart, by_place.values(), strict=True), 1)
    ]
    return sorted(found, key=lambda one: (one.board.rows[0].conditions.model in names("models"), not one.featured))


def _apart(shared: Sequence[Conditions]) -> list[str]:
    """A name for each group: its model, and what differs from other groups on that model."""
    by_model: dict[str, list[Conditions]] = {}
    for one in shared:
        by_model.setdefault(one.model or "model not recorded", []).append(one)
    told = {}
    for model, some in by_model.items():
        for one, said in differences(some).items():
            told[one] = f"{model} ({said})" if said else model
    return [told[one] for one in shared]


def _key(number: int, name: str) -> str:
    # The number keeps keys apart whose names differ only in characters that are replaced here.
    return f"{number}-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')[:40]}".rstrip("-")


def _is_featured(rows: Sequence[Row]) -> bool:
    tasks = {row.task for row in rows}
    asked: dict[str, set[str]] = {}
    for row in rows:
        if row.score is not None and row.seeds >= FEWEST_SEEDS and row.documents >= FEWEST_DOCUMENTS:
            asked.setdefault(row.label, set()).add(row.task)
    return sum(some == tasks for some in asked.values()) >= FEWEST_METHODS


def _folders(board: Board, rows: Sequence[Row]) -> list[Path]:
    """The folders that gave one of the rows; all folders if the board does not know which."""
    # `measured` is in the order of `folders`, except on the board of a group, which has only some of the folders.
    if board.measured is None or len(board.measured) != len(board.folders):
        return list(board.folders)
    here = {(row.task, row.conditions) for row in rows}
    return [folder for folder, there in zip(board.folders, board.measured.values(), strict=True) if here & set(there)]
