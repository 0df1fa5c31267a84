"""Reads run folders into one board: the list of rows behind the page, Markdown and Parquet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from adaptive_bench.store.runs import is_entry
from adaptive_bench.tables.comparability import Conditions, conditions_of, joined, made_by_other_rules, short_names
from adaptive_bench.tables.document_scores import DocumentScores

from .entry import SELF_REPORTED, Entry, read_entry
from .plain import plain
from .row import Rejected, Row, beside_dense, checked, read_of_run
from .swept_answers import Answers, answers_of, read_answers

Measured = Mapping[str, Collection[tuple[str, Conditions]]]  # by run: its tasks, each with its conditions


@dataclass(frozen=True)
class Board:
    """The rows and the data behind them, from which a site is made.

    Attributes:
        rows: Accepted rows, joined over runs.
        folders: Folders of the runs that gave a row.
        problems: What was left out and why, one sentence each, and what else a reader should know.
        answers: The answers of each run, by the name that rows use for it.
        measured: The tasks and conditions for which a run's answers count; without it, they count for all rows.
        refused: The problems with rows or entries that break a rule; a strict build fails if there are any.
        entries: The entries by folder; runs that are not entries are not in it.
    """

    rows: Sequence[Row]
    folders: Sequence[Path] = ()
    problems: Sequence[str] = ()
    answers: Mapping[str, Answers] = field(default_factory=dict)
    measured: Measured | None = None
    refused: Sequence[str] = ()
    entries: Mapping[Path, Entry] = field(default_factory=dict)

    def behind(self, row: Row) -> tuple[Answers, DocumentScores] | None:
        """The answers from which a row's score comes, and their scores; `None` if no run has them."""
        for run, some in self.answers.items():
            # Several runs may have answers of a method on a task: only those under the row's conditions can be its.
            here = self.measured is None or (row.task, row.conditions) in self.measured.get(run, ())
            if here and (found := some.scores(row)) is not None:
                return some, found
        return None

    @cached_property  # thousands of rows, used by three files
    def lines(self) -> list[dict[str, Any]]:
        """The rows as they are written to files."""
        return [row.plain() for row in self.rows]


def board_of(
    rows: Iterable[Mapping[str, Any]],
    folders: Sequence[Path] = (),
    problems: Sequence[str] = (),
    answers: Mapping[str, Answers] | None = None,
    measured: Measured | None = None,
) -> Board:
    """A board of rows that were checked, with the answers of their runs by the run's name."""
    return Board(beside_dense(map(Row.of, rows)), folders, problems, answers or {}, measured)


def read_board(tables: Iterable[Path]) -> Board:
    """Read `table.json` files. Files that cannot be read and rows that break a rule are left out and reported."""
    by_folder: dict[Path, list[dict[str, Any]]] = {}
    entries: dict[Path, Entry] = {}
    problems: list[str] = []
    for path in tables:
        rows, why = _entry_rows(path.parent, entries) if is_entry(path.parent) else _read(path)
        problems += why
        if rows:
            by_folder[path.parent] = rows
    # Taken before the next line: a run that was matched by other rules is noted, but breaks no rule of the board.
    # The table of an entry is computed by the present rules, so entries cannot be among them.
    refused = list(problems)
    problems += map(plain, made_by_other_rules(folder for folder in by_folder if folder not in entries))
    # If runs disagree, names of folders become part of labels, so they are made plain text.
    named: Mapping[Path, list[dict[str, Any]]] = {Path(plain(str(folder))): rows for folder, rows in by_folder.items()}
    names = short_names(named)
    answers: dict[str, Answers] = {}
    for folder, shown in zip(by_folder, named, strict=True):
        try:
            known = entries.get(folder)
            answers[names[shown]] = read_answers(folder) if known is None else answers_of(known.answers)
        except Rejected as why:
            problems.append(f"Paired tests of {plain(folder.name)} are left out: {why}.")
            refused.append(problems[-1])
    measured = {names[shown]: {(row["task"], conditions_of(row)) for row in rows} for shown, rows in named.items()}
    found = board_of(joined(named), list(by_folder), problems, answers, measured)
    return replace(found, refused=refused, entries=entries)


def _entry_rows(folder: Path, entries: dict[Path, Entry]) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of an entry and its problems; a refused entry gives no rows. Adds the entry to `entries`."""
    try:
        found = entries[folder] = read_entry(folder)
    except Rejected as why:
        return [], [f"{plain(folder.name)} is left out: {why}."]
    return [row | found.of_row(row) for row in found.rows], []


def _read(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    name = plain(f"{path.parent.name}/{path.name}")
    try:
        # Read only to be checked: `provenance` reads it later, and would stop the build if it is damaged.
        if (about := path.with_name("run.json")).is_file():
            read_of_run(about)
        values = read_of_run(path)
        if not isinstance(values, list):
            raise Rejected(f"a table is a list of rows, got {type(values).__name__}")
    except Rejected as why:
        return [], [f"{name} is left out: {why}."]
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    for number, value in enumerate(values):
        try:
            rows.append(checked(value) | {"evidence": SELF_REPORTED})
        except Rejected as why:
            problems.append(f"Row {number} of {name} is left out: {why}.")
    return rows, problems
