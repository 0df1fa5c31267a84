"""The sentence on top of a board: which method, and whether it is better than cutting layers. Every claim in it is a
condition here; what does not hold is not said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adaptive_bench.metric import metric_of
from adaptive_bench.spec import method_name

from .against import at_own_savings
from .frame import Board
from .grid import AXES, Grid
from .groups import FEWEST_SEEDS
from .marks import FAR, PARTIAL, marks
from .numbers import percent
from .paired import is_trained_static
from .row import Row
from .standing import Line, Standing
from .tables import difference, p_value

MOST_WORDS = 24
NEAR = 0.05  # of the level: a saving at which cutting layers was measured may stand in for it
_RESERVED = (FAR, PARTIAL, "†", "‡")  # marks of scores that carry no claim
_RANDOM = "random_skip"
_BEHIND = "is behind"
_NONE_NAMED = "no method is named: the highest mean scores carry reservations"


@dataclass(frozen=True)
class Answer:
    """The sentence, and what it rests on.

    Attributes:
        leader: Label of the method it names; empty where it names none.
        evidence: How the leader compares with cutting layers, one sentence for each task, and what was not measured.
    """

    text: str
    leader: str = ""
    evidence: tuple[str, ...] = ()


def answer(board: Board, standing: Standing, *, featured: bool = False) -> Answer:
    """Fewer than 25 words.

    A method is named if its mean over the tasks is the highest of those that have one and whose scores are without
    reservation: measured near the level and within the saving it was trained for, by every seed, on a dial that moves
    something; on a featured board with enough seeds; and, where random skipping was measured,
    ahead of it on a task and behind it on none. Where others are above it, none of them is certainly better, and the
    sentence says among whom it leads. It is tied with those that its rank interval does not tell from it.

    Cutting layers is trained static depth, of several rules that with the best score, which favours the control: at
    the level where that was measured near it, else at the nearest saving within 5 points at which one was measured
    that was trained for it, whether or not the leader was measured near that. A task on which the comparison carries
    another mark, or cannot be made, is not among those compared.

    Args:
        standing: Of the board's rows.
        featured: Whether the board is featured.
    """
    ranked = [line for line in standing.lines if line.rank is not None]
    if not standing.tasks:
        return _without("nothing is ranked: the dense model is not known to be better than a guess", standing)
    if not ranked:
        return _without("no method reaches this saving on every task", standing)
    sound = [line for line in ranked if not reserved(line, featured)]
    if not sound:
        return _without(_NONE_NAMED, standing)
    chance = [_over_random(board, standing, line) for line in sound]
    measured = any(one is not None for one in chance)
    ahead = [line for line, one in zip(sound, chance, strict=True) if one or (one is None and not measured)]
    if not ahead:
        return _without("no method is certainly ahead of random skipping", standing)
    leader = ahead[0]
    if leader.rank is None or leader.rank[0] > 1:
        return _without(_NONE_NAMED, standing)
    unmarked = any(line not in sound for line in ranked[: ranked.index(leader)])
    told = f"{leader.label} leads"
    if unmarked or leader is not sound[0]:
        told += f" {'unmarked' if unmarked else 'the'} methods{'' if leader is sound[0] else ' ahead of chance'}"
    if tied := _tied(leader, ranked):
        told += f", tied with {tied} other{'s' if tied > 1 else ''}"
    against, evidence = _against_static(board, standing, leader)
    link = ", but" if against.startswith(_BEHIND) else ";"
    notes = [] if measured else ["Random skipping was not measured at this saving, so no comparison with it is made."]
    return Answer(_fitting(f"{told}{link} {against}", standing), leader.label, (*evidence, *notes))


def reserved(line: Line, featured: bool = False) -> bool:
    """Whether a mark of one of its scores says that nothing may be claimed of it."""
    rows = [row for row in line.rows if row is not None]
    few = featured and any(row.seeds < FEWEST_SEEDS for row in rows)
    return few or any(mark in _RESERVED for row in rows for mark, _ in marks(row))


def _without(said: str, standing: Standing) -> Answer:
    return Answer(_fitting(said, standing))


def _fitting(said: str, standing: Standing) -> str:
    """With the axis named where that leaves fewer than 25 words: it stands in the table's title as well."""
    phase = "" if standing.phase == "all" else f" of {standing.phase}"
    level = f"At {100 * standing.level:.4g} %"
    whole = f"{level} {AXES[standing.axis]}{phase}, {said}."
    return whole if len(whole.split()) <= MOST_WORDS else f"{level}, {said}."


def _tied(leader: Line, ranked: Sequence[Line]) -> int:
    """How many others its rank interval leaves open on either side."""
    assert leader.rank is not None
    low, high = leader.rank
    return high - low


def _over_random(board: Board, standing: Standing, line: Line) -> bool | None:
    """Whether a method is ahead of every random control on a task and behind one on none; `None` where no task has
    one.
    """
    said = []
    for grid, row in zip(standing.tasks, line.rows, strict=True):
        controls = [grid.cells[label, at] for label, at in grid.cells if _is_random(label, at, standing.level)]
        found = [_apart(board, grid, row, one) for one in controls if row is not None and one.score is not None]
        said += [min(found)] if found else []
    return None if not said else any(one > 0 for one in said) and not any(one < 0 for one in said)


def _is_random(label: str, at: float, level: float) -> bool:
    return method_name(label) == _RANDOM and at == level


def _apart(board: Board, grid: Grid, row: Row, control: Row) -> int:
    """1 if a method is certainly better than a control at one level, -1 if worse, 0 if nobody can tell."""
    sign = -1 if metric_of(grid.metric).better == "lower" else 1
    ahead = sign * (row.reached() - control.reached())
    tests = board.comparisons.get((grid.place, row.level))
    if tests is not None and row.label in tests.ranks and control.label in tests.ranks:
        static = control.label == tests.static
        found = tests.over_static.get(row.label) if static else tests.over(row.label, control.label)
        certain = found is not None and found.apart
    else:
        certain = _intervals_apart(row, control)
    return 0 if not certain else 1 if ahead > 0 else -1


def _intervals_apart(one: Row, other: Row) -> bool:
    if one.interval is None or other.interval is None:
        return False
    return one.interval[0] > other.interval[1] or other.interval[0] > one.interval[1]


def _against_static(board: Board, standing: Standing, leader: Line) -> tuple[str, list[str]]:
    """What is said of the leader and cutting layers, and the sentences behind it."""
    found: list[int] = []
    evidence: list[str] = []
    there = False
    for grid, row in zip(standing.tasks, leader.rows, strict=True):
        control = _control(board, grid, standing.level)
        there = there or control is not None
        if control is not None and row is not None and not marks(control):
            found.append(_apart(board, grid, row, control))
            evidence.append(_at_level(board, grid, row, control))
            continue
        asked, said = _at_own(board, grid, leader.label, standing.level)
        found += [] if asked is None else [asked]
        evidence.append(said)
    return _static_clause(found, there, len(standing.tasks)), evidence


def _control(board: Board, grid: Grid, level: float) -> Row | None:
    """The trained static control: the one that tests chose, else the best there is."""
    tests = board.comparisons.get((grid.place, level))
    if tests is not None and tests.static is not None:
        return grid.cells[tests.static, level]
    rows = [row for (label, at), row in grid.cells.items() if at == level and is_trained_static(label)]
    return max((row for row in rows if row.kept is not None), key=lambda row: row.kept or 0.0, default=None)


def _at_level(board: Board, grid: Grid, row: Row, control: Row) -> str:
    tests = board.comparisons.get((grid.place, row.level))
    found = None if tests is None else tests.over_static.get(row.label)
    scores = [grid.score(one.label, row.level) for one in (row, control)]
    told = f"{grid.name}: {row.label} {scores[0]}, cutting layers ({control.label}) {scores[1]}"
    if found is None:
        return f"{told}; methods are told apart by non-overlapping intervals, not by a paired test."
    low, high = (difference(grid.metric, end) for end in (found.low, found.high))
    return (
        f"{told}; difference {difference(grid.metric, found.difference)} [{low}, {high}], p {p_value(found.p)}, "
        f"corrected for the comparisons with it."
    )


def _at_own(board: Board, grid: Grid, leader: str, level: float) -> tuple[int | None, str]:
    """As `_apart`, at the control's own saving; `None` where it has none that is near, or a mark stands there."""
    own = [one for one in at_own_savings(board, grid) if abs(one.saving - level) <= NEAR and leader in one.over]
    if not own:
        told = f"{grid.name}: cutting layers (static_depth[trained=true]), trained for the cut, was not measured"
        return None, f"{told} within {100 * NEAR:.0f} points of this saving."
    near = min(own, key=lambda one: abs(one.saving - level))
    found = near.over[leader]
    low, high = (difference(grid.metric, end) for end in (found.low, found.high))
    told = (
        f"{grid.name}: at {percent(near.saving)} %, where cutting layers ({near.control}) was measured, the "
        f"difference is {difference(grid.metric, found.difference)} [{low}, {high}], p {p_value(found.p)}, corrected "
        f"for the comparisons there"
    )
    if reservations := "".join(dict.fromkeys(near.marks[leader] + near.marks[near.control])).replace(FAR, ""):
        return None, f"{told}; not counted, as it is marked {reservations}."
    return (0 if not found.apart else 1 if found.difference > 0 else -1), f"{told}."


def _static_clause(found: Sequence[int], there: bool, tasks: int) -> str:
    if not there:
        return "cutting layers was not measured"
    if not found:
        return "cutting layers was not measured nearby"
    better, worse = sum(one > 0 for one in found), sum(one < 0 for one in found)
    if better and worse:
        return f"beats cutting layers on {_tasks(better)}, behind on {worse}"
    count, compared = better or worse or len(found), len(found)
    all_compared = compared == tasks
    kind = "tasks" if all_compared else "tasks compared"
    if count < compared:
        where = f" on {count} of {compared} {kind}"
    elif compared > 1:
        where = f" on all {compared} {kind}"
    else:
        where = "" if all_compared else " on the one task compared"
    verb = "beats" if better else _BEHIND if worse else "ties"
    return f"{verb} cutting layers{where}"


def _tasks(count: int) -> str:
    return f"{count} task{'s' if count > 1 else ''}"
