"""The conclusion in words, written from the rows: nothing in it that a test or an interval does not carry."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_bench.metric import metric_of
from adaptive_bench.spec import method_name

from .frame import Board
from .grid import AXES, STATIC, Grid, grids
from .headroom import headroom
from .marks import is_far, marks, other_layers
from .numbers import percent
from .paired import Comparison
from .plain import plain
from .row import Row
from .tables import FAMILY_OF_CONTROLS
from .wording import capitalised

_NEARLY_ALL = 0.75
_PREFERRED = 0.15  # the saving of the paper's second table
_MOST_TASKS = 4
_MOST_NAMES = 3
LONGEST = 4000  # characters of a verdict


def verdict(board: Board, axis: str, phase: str = "all") -> str:
    """One sentence, a clause for each task: the best method at one saving with its ranks, and whether random skipping
    and static depth are behind it.

    Two methods are told apart by a test, corrected for all pairs of the column, and from the trained static control
    by one that is corrected for the comparisons with it; where documents are not known, only where their intervals do
    not overlap, which is stricter, and the sentence says so. Where headroom was measured, what it says of the tasks.
    """
    first: dict[str, str] = {}
    for row in board.rows:
        first.setdefault(row.task, row.metric)
    chosen = [
        grid
        for grid in grids(row for row in board.rows if row.axis == axis and row.phase == phase)
        if first[grid.task] == grid.metric
    ]
    clauses = []
    tested = []
    for grid in chosen[:_MOST_TASKS]:
        level = level_of(grid)
        if not level:
            continue
        found = board.comparisons.get((grid.place, level))
        if said := _clause(grid, level, found):
            clauses.append((level, said))
            tested.append(found is not None)
    if not clauses:
        return f"No method reached a level above 0 % on the axis {AXES[axis]}."
    one = len({level for level, _ in clauses}) == 1
    at = [f"at {100 * level:.4g} % {AXES[axis]}" for level, _ in clauses]
    if one:
        text = f"{at[0]}, " + "; ".join(said for _, said in clauses)
    else:
        text = "; ".join(f"{where}, {said}" for where, (_, said) in zip(at, clauses, strict=True))
    text = capitalised(text) + "."
    if not any(tested):
        text += " Methods are told apart by non-overlapping intervals, not by a paired test."
    told = headroom(board.folders, {grid.task for grid in chosen})
    return plain(" ".join([text, *(said for _, said in told)]), LONGEST)


def answer(grid: Grid) -> str:
    """One sentence about one grid whose rows have what `curves.add_curves` gives: as `verdict`, without paired tests.

    A method is ahead of another one only where their intervals do not overlap. Empty where no method that decides per
    token reached a level above nothing.
    """
    level = level_of(grid)
    if not level or not (said := _clause(grid, level, None)):
        return ""
    told = f"At {100 * level:.4g} % {AXES[grid.axis]}, {said}."
    static = any(method_name(row.method) in STATIC for row in grid.cells.values() if row.score is not None)
    if not static:
        told += " Whether skipping whole layers would keep as much was not measured (static_depth)."
    return plain(told, LONGEST)


def _clause(grid: Grid, level: float, tests: Comparison | None) -> str:
    reached = [row for (_, at), row in grid.cells.items() if at == level and row.score is not None]
    sign = -1 if metric_of(grid.metric).better == "lower" else 1
    ranked = sorted((row for row in reached if not _control(row)), key=lambda row: -sign * row.reached())
    where = f"on {grid.name}"
    if not ranked:
        return ""
    if sign > 0 and not any(row.reached() for row in reached):
        return f"{where} every score is 0, so no method is named"

    def apart(better: Row, worse: Row) -> bool:
        ahead = sign * (better.reached() - worse.reached()) > 0
        if tests is not None:
            if worse.label == tests.static:
                return ahead and better.label in tests.over_static and tests.over_static[better.label].apart
            return ahead and tests.apart(better.label, worse.label)
        return ahead and _separate(better, worse, sign)

    leader, others = ranked[0], ranked[1:]
    keeps = f"{leader.label} {_keeps(leader, grid)}"
    chance = [row for row in reached if method_name(row.method) == "random_skip"]
    reserved = [_marked(row) for row in chance if marks(row)]
    by_chance = "random skipping" + (f" ({', '.join(reserved)})" if reserved else "")
    static = [row for row in reached if method_name(row.method) in STATIC]
    near = [row for row in static if not is_far(row) and not other_layers(row.trained_without, row.saved_tokens)]
    fixed = [_marked(row) for row in near if not apart(leader, row)]
    not_near = ""
    if far := [row.label for row in static if is_far(row)]:
        not_near = f" ({', '.join(far)}: no measured point within 2 points of this saving on one side or both)"
    if not chance:
        behind = f", and not ahead of the control{'s' if len(fixed) > 1 else ''} {' and '.join(fixed)}" if fixed else ""
        return f"{where} {keeps}, with no random skipping to compare with{behind}{not_near}"
    ahead = [row for row in ranked if all(apart(row, other) for other in chance)]
    if not ahead:
        highest = f"highest score: {leader.label}, which {_keeps(leader, grid)}"
        return f"{where} no method is certainly ahead of {by_chance} ({highest})"
    if ahead[0] is not leader:
        best = f"{ahead[0].label}, which {_keeps(ahead[0], grid)}"
        return f"{where} {keeps}, but is not certainly ahead of {by_chance}; the best of those that are is {best}"
    told = f"{where} {keeps}, ahead of {by_chance}"
    if beaten := [_marked(row) for row in near if marks(row) and apart(leader, row)]:
        told += f" and of {' and '.join(beaten)}"
    if fixed:
        told += f" but not of the control{'s' if len(fixed) > 1 else ''} {' and '.join(fixed)}"
    told += not_near
    if tests is not None:
        return f"{told}; {_rank(leader, len(tests.order))}"
    if not others:
        return told
    tied = [row.label for row in others if not apart(leader, row)]
    return f"{told}; {_names(tied)} not told apart from it" if tied else f"{told}, and ahead of every other method"


def level_of(grid: Grid) -> float | None:
    """Of the levels above nothing that nearly all methods reach that reach any, the one nearest to 15 %."""
    counts = {
        level: sum(
            1 for (_, at), row in grid.cells.items() if at == level and row.score is not None and not _control(row)
        )
        for level in grid.levels
        if level > 0
    }
    most = max(counts.values(), default=0)
    near = [level for level, count in counts.items() if count >= _NEARLY_ALL * most]
    return min(near, key=lambda level: abs(level - _PREFERRED)) if most else None


def _control(row: Row) -> bool:
    """Whether it is no method that decides per token: what the verdict names as best does."""
    return method_name(row.method) in (*FAMILY_OF_CONTROLS, *STATIC)


def _separate(better: Row, worse: Row, sign: int) -> bool:
    if better.interval is None or worse.interval is None:
        return False
    near, far = (0, 1) if sign > 0 else (1, 0)
    return sign * (better.interval[near] - worse.interval[far]) > 0


def _marked(row: Row) -> str:
    return row.label + "".join(mark for mark, _ in marks(row))


def _keeps(row: Row, grid: Grid) -> str:
    reservations = "".join(mark for mark, _ in marks(row))
    if row.kept is None:
        return f"scores {grid.score(row.label, row.level)}"
    low, high = row.kept_low, row.kept_high
    interval = "" if low is None or high is None else f" [{percent(low)}, {percent(high)}]"
    return f"keeps {percent(row.kept)} %{reservations}{interval} of the dense score"


def _rank(row: Row, methods: int) -> str:
    only = row.rank_low == row.rank_high
    return f"rank {row.rank_low} of {methods}" if only else f"rank {row.rank_low} to {row.rank_high} of {methods}"


def _names(names: Sequence[str]) -> str:
    if len(names) > _MOST_NAMES:
        return f"{len(names)} other methods are"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) + (" is" if len(names) == 1 else " are")
