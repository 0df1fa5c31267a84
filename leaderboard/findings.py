"""What a board found, in sentences with their figures and intervals: written from its rows, nothing by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path

from adaptive_bench import output
from adaptive_bench.errors import EnvironmentProblem, UsageError

from . import sentences
from .decisions import PREFERRED
from .dials import immovable_dials
from .frame import Board, read_board
from .grid import grids
from .marks import marks
from .plain import markdown
from .provenance import measured_earlier, variants_of
from .row import Row
from .rows import first_metrics
from .sentences import Column


def findings(board: Board, axis: str = "net", level: float = PREFERRED, note: str = "") -> str:
    """Markdown: sentences about the methods at one level, for the first metric of each task; a `note` goes first.

    A difference is stated as one only where a paired test says so, corrected for the comparisons of its sentence. No
    sentence names a cause that was not measured.
    """
    first = first_metrics(board.rows)
    rows = [row for row in board.rows if row.metric == first[row.task] and row.phase == "all"]
    here = [row for row in rows if row.level == level and row.score is not None]
    told = [row for row in here if row.axis == axis]
    columns, tokens = (list(_columns(board, rows, on, level)) for on in (axis, "tokens"))
    variants = variants_of(board.folders)
    models = dict.fromkeys(markdown(row.model) for row in here if row.model)
    parts = [
        f"# Findings: {', '.join(models)}" if models else "# Findings",
        *([note] if note else []),
        f"Figures at {100 * level:.4g} % saved unless another level is named, with 95 % intervals; differences are "
        "in the unit of the score. Ranks are those that the tests of all pairs of a column leave open, at a "
        "family-wise error rate of 5 %; p is corrected, and the interval of a difference has the confidence of its "
        "test.",
        *filter(None, [measured_earlier(board.folders)]),
        *_section("Whether there is anything to decide", sentences.headroom(board.folders, {row.task for row in here})),
        *_section("What training gained", sentences.training(board, columns)),
        *_section("Which methods are ahead", sentences.order(columns)),
        *_section("Where tokens may skip", sentences.sites(columns)),
        *_section("Who is better than static depth", sentences.static(board, columns)),
        *_section("Loss with the decisions of other tokens", sentences.choice(columns)),
        *_section("The order beside the paper's Table 1", sentences.paper(tokens)),
        *_section("What counting tokens leaves out", sentences.tokens(board, tokens)),
        *_section("What random controls show", sentences.random_controls(columns)),
        *_section("Vector and scalar gates", chain(sentences.gates(columns, variants), sentences.idle_gates(rows))),
        *_section("Claimed and executed", sentences.claims(told)),
        *_section("Prefill and decode", sentences.phases(told)),
        *_section("Dials that cannot move a task", map(markdown, immovable_dials(board))),
    ]
    parts += _section("Marks", (f"{mark} {meaning}." for mark, meaning in _marks(rows, here, "".join(parts))))
    return "\n\n".join(parts) + "\n"


def _section(title: str, said: Iterator[str]) -> list[str]:
    """Sentences as a list; what has a table in it as paragraphs."""
    parts = [f"## {title}"]
    for has_table, found in groupby(said, key=lambda one: "\n" in one):
        some = list(found)
        parts += some if has_table else ["\n".join(f"- {sentence}" for sentence in some)]
    return parts if len(parts) > 1 else []


def _columns(board: Board, rows: Sequence[Row], axis: str, level: float) -> Iterator[Column]:
    for grid in grids(row for row in rows if row.axis == axis):
        found = board.comparisons.get((grid.place, level))
        if found is not None:
            yield Column(grid, level, found)


def _marks(rows: Sequence[Row], here: Sequence[Row], text: str) -> list[tuple[str, str]]:
    """What the marks in a text mean: those at its level, and others that stand behind a name in it."""
    found = dict.fromkeys(mark for row in here for mark in marks(row))
    others = dict.fromkeys(mark for row in rows for mark in marks(row))
    named = set("".join(re.findall(r"`([^\w\s.,:;)]+)", text)))
    return [*found, *(mark for mark in others if mark not in found and mark[0] in named)]


def write_findings(
    tables: Sequence[Path], out: Path, axis: str = "net", level: float = PREFERRED, note: str = ""
) -> list[str]:
    """Write `findings` of some `table.json`; what was left out of the board, one sentence each.

    Raises:
        EnvironmentProblem: No table holds.
        UsageError: No method has a score at the level.
    """
    board = read_board(tables)
    if not board.rows and board.refused:
        raise EnvironmentProblem(f"Findings need at least one valid table, and none is. {' '.join(board.refused)}")
    there = sorted({row.level for row in board.rows if row.axis == axis and row.score is not None})
    if level not in there:
        raise UsageError(
            f"Findings are about a level of the table, got {level:g} on the axis {axis}. There is "
            f"{', '.join(f'{one:g}' for one in there) or 'none, as no method has a score on it'}. Name another "
            f"--level or --axis."
        )
    output.write_text(out, findings(board, axis, level, note))
    return list(board.problems)
