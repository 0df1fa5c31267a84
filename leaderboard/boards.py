"""Reads runs and entries into a board, and splits it into groups of comparable rows: one model and one recipe each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adaptive_bench.registry import names
from adaptive_bench.store.runs import is_entry
from adaptive_bench.tables.comparability import Conditions, conditions_of, differences, joined, made_by_other_rules
from adaptive_bench.tables.document_scores import DocumentScores

from .entry import SELF_REPORTED, Entry, read_entry
from .plain import plain
from .row import Rejected, Row, beside_dense, checked, read_of_run
from .swept_answers import Answers, answers_of, read_answers

FEWEST_SEEDS, FEWEST_DOCUMENTS, FEWEST_METHODS = 3, 100, 3
RULE = (
    f"A board is featured where at least {FEWEST_METHODS} methods were evaluated on at least {FEWEST_DOCUMENTS} "
    f"documents of every task with at least {FEWEST_SEEDS} seeds; all others are in the sandbox."
)


@dataclass(frozen=True)
class Source:
    """A run or an entry that gave rows to a board."""

    folder: Path
    entry: Entry | None = None
    measured: Collection[tuple[str, Conditions]] = ()  # of its rows, for which its answers count
    answers: Answers = field(default_factory=Answers)


@dataclass(frozen=True)
class Board:
    """The rows and the data behind them, from which a site is made.

    Attributes:
        refused: The problems with rows or entries that break a rule; a strict build fails if there are any.
    """

    rows: Sequence[Row]  # accepted rows, joined over runs
    sources: Sequence[Source] = ()  # the runs and entries that gave a row
    problems: Sequence[str] = ()  # what was left out and why, one sentence each, and what else a reader should know
    refused: Sequence[str] = ()

    @property
    def folders(self) -> list[Path]:
        """Folders of the runs and entries."""
        return [one.folder for one in self.sources]

    @property
    def entries(self) -> dict[Path, Entry]:
        """The entries by folder; runs that are not entries are not in it."""
        return {one.folder: one.entry for one in self.sources if one.entry is not None}

    def behind(self, row: Row) -> tuple[Answers, DocumentScores] | None:
        """The answers from which a row's score comes, and their scores; `None` if no run has them."""
        for one in self.sources:
            # Several runs may have answers of a method on a task: only those under the row's conditions can be its.
            if (row.task, row.conditions) in one.measured and (found := one.answers.scores(row)) is not None:
                return one.answers, found
        return None

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The rows as they are written to files."""
        return [row.plain() for row in self.rows]


def read_board(tables: Iterable[Path]) -> Board:
    """Read `table.json` files. Files that cannot be read and rows that break a rule are left out and reported."""
    found: dict[Path, tuple[list[dict[str, Any]], Entry | None]] = {}
    problems: list[str] = []
    for path in tables:
        folder = path.parent
        try:
            entry = read_entry(folder) if is_entry(folder) else None
            rows, wrong = _of_run(path) if entry is None else ([row | entry.of_row(row) for row in entry.rows], [])
        except Rejected as why:
            name = folder.name if is_entry(folder) else f"{folder.name}/{path.name}"
            problems.append(f"{plain(name)} is left out: {why}.")
            continue
        problems += wrong
        if rows:
            found[folder] = rows, entry
    # Taken before the next line: a run that was matched by other rules is noted, but breaks no rule of the board.
    # The table of an entry is computed by the present rules, so entries cannot be among them.
    refused = list(problems)
    problems += map(plain, made_by_other_rules(folder for folder, (_, entry) in found.items() if entry is None))
    sources = []
    for folder, (rows, entry) in found.items():
        answers = Answers()
        try:
            answers = read_answers(folder) if entry is None else answers_of(entry.answers)
        except Rejected as why:
            problems.append(f"Paired tests of {plain(folder.name)} are left out: {why}.")
            refused.append(problems[-1])
        sources.append(Source(folder, entry, {(row["task"], conditions_of(row)) for row in rows}, answers))
    # If runs disagree, names of folders become part of labels, so they are made plain text.
    joint = joined({Path(plain(str(folder))): rows for folder, (rows, _) in found.items()})
    return board_of(joint, sources, problems, refused)


def board_of(
    rows: Iterable[Mapping[str, Any]],
    sources: Sequence[Source] = (),
    problems: Sequence[str] = (),
    refused: Sequence[str] = (),
) -> Board:
    """A board of rows that were checked."""
    return Board(beside_dense(Row(**row) for row in rows), sources, problems, refused)


def _of_run(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a run's table, and a sentence for each row that breaks a rule."""
    # Read only to be checked: `provenance` reads it later, and would stop the build if it is damaged.
    if (about := path.with_name("run.json")).is_file():
        read_of_run(about)
    values = read_of_run(path)
    if not isinstance(values, list):
        raise Rejected(f"a table is a list of rows, got {type(values).__name__}")
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    for number, value in enumerate(values):
        try:
            rows.append(checked(value) | {"evidence": SELF_REPORTED})
        except Rejected as why:
            problems.append(f"Row {number} of {plain(f'{path.parent.name}/{path.name}')} is left out: {why}.")
    return rows, problems


@dataclass(frozen=True)
class Group:
    """The rows measured on one model with one recipe.

    Attributes:
        key: Name of its files: letters, digits and hyphens.
        name: The model, with what distinguishes it from other groups on that model.
        featured: Whether `RULE` holds.
        board: A board of only its rows and sources.
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
    found = []
    for number, (name, rows) in enumerate(zip(apart, by_place.values(), strict=True), 1):
        here = {(row.task, row.conditions) for row in rows}
        part = replace(board, rows=rows, sources=[one for one in board.sources if not here.isdisjoint(one.measured)])
        found.append(Group(_key(number, name), name, _is_featured(rows), part))
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
