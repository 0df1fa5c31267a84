"""One list of rows from run folders: the source of the page, of Markdown, CSV, JSON, Parquet and of every figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adaptive_bench.tables.comparable import conditions_of
from adaptive_bench.tables.finished import joined, short_names

from .answers import Answers, read_answers
from .curves import with_curves
from .entry import read_rows
from .grid import label
from .paired import Comparisons, Measured, with_tests
from .plain import plain
from .rows import Rejected, Row, checked

_MOST_PROBLEMS = 50


@dataclass(frozen=True)
class Board:
    """What a site is made of.

    Attributes:
        rows: Rows that were let in, joined over runs, with what `curves` and `paired` add to each.
        folders: The runs' folders that gave a row.
        problems: What was left out and why, one sentence each.
        comparisons: Which methods differ, by column; none where documents are not known.
    """

    rows: Sequence[Row]
    folders: Sequence[Path] = ()
    problems: Sequence[str] = field(default=())
    comparisons: Comparisons = field(default_factory=dict)

    @property
    def lines(self) -> list[Row]:
        """The rows as they are written to files: what a row is called comes first."""
        return [{"label": label(row), **row} for row in self.rows]


def board_of(
    rows: Iterable[Row],
    folders: Sequence[Path] = (),
    problems: Sequence[str] = (),
    answers: Mapping[str, Answers] | None = None,
    measured: Measured | None = None,
) -> Board:
    """A board of rows that were checked, and of the answers of their runs by the name of the run (see `with_tests`)."""
    tested, comparisons = with_tests(with_curves(list(rows)), answers or {}, measured)
    return Board(tested, folders, problems, comparisons)


def read_board(tables: Iterable[Path]) -> Board:
    """Read `table.json` files. What cannot be read, and every row that breaks a rule, is left out and said."""
    by_folder: dict[Path, list[Row]] = {}
    problems: list[str] = []
    for path in tables:
        rows, why = _read(path)
        problems += why
        if rows:
            by_folder[path.parent] = rows
    # The name of a run's folder becomes part of a name where runs disagree.
    named: Mapping[Path, list[Row]] = {Path(plain(str(folder))): rows for folder, rows in by_folder.items()}
    names = short_names(named)
    answers: dict[str, Answers] = {}
    for folder, shown in zip(by_folder, named, strict=True):
        try:
            answers[names[shown]] = read_answers(folder)
        except Rejected as why:
            problems.append(f"Paired tests of {plain(folder.name)} are left out: {why}.")
    measured = {names[shown]: {(row["task"], conditions_of(row)) for row in rows} for shown, rows in named.items()}
    return board_of(joined(named), list(by_folder), problems, answers, measured)


def _read(path: Path) -> tuple[list[Row], list[str]]:
    name = plain(f"{path.parent.name}/{path.name}")
    try:
        values = read_rows(path)
    except Rejected as why:
        return [], [f"{name} is left out: {why}."]
    rows: list[Row] = []
    problems: list[str] = []
    for number, value in enumerate(values):
        try:
            rows.append(checked(value))
        except Rejected as why:
            problems.append(f"Row {number} of {name} is left out: {why}.")
    if len(problems) > _MOST_PROBLEMS:
        problems = [*problems[:_MOST_PROBLEMS], f"{len(problems) - _MOST_PROBLEMS} more rows of {name} are left out."]
    return rows, problems
