"""Values of a column that follow from others: what a rule predicts rightly needs no value of its own.

A column has the values of one place of a form, in rows that are sorted by line, then by file: what different files
have on the same line (a document, a step of training) stands together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

LAST: Final = "last"
RECENT: Final = "recent"
COPY: Final = "copy"
TIMES: Final = "times"
NEW: Final = 255  # stands for a value that no rule gives
_REMEMBERED: Final = {LAST: 1, RECENT: NEW}  # how many of the values of a line
_BETTER: Final = 0.8  # of the new values of another rule, for one that costs more to note
_FEWER: Final = 0.95  # of the new values of `LAST`, for `RECENT`, which has more to say of the others
_PLACES: Final = (0.0, 0.3, 0.5, 0.8, 1.0)  # of a column, where a rule is tried before all of it is


class Rule(NamedTuple):
    """How values are predicted.

    Attributes:
        name: `LAST`, the value that the last row of the same line had; `RECENT`, one of those that such rows had,
            counted back from the last; `COPY`, the value of column `of`; `TIMES`, it times `factor`.
        of: Of `COPY` and `TIMES` the place of a column that is known already.
    """

    name: str
    of: int | None = None
    factor: float = 1.0


def ranks(rule: Rule, column: Sequence[str], lines: Sequence[int], known: Mapping[int, Sequence[str]]) -> bytes:
    """For each row 0 if the rule gives its value, `NEW` if it does not; of `RECENT` how far back it is."""
    if (most := _REMEMBERED.get(rule.name)) is not None:
        memory: dict[int, list[str]] = {}
        found = bytearray()
        for line, value in zip(lines, column, strict=True):
            before = memory.setdefault(line, [])
            found.append(before.index(value) if value in before else NEW)
            _remember(before, found[-1], value, most)
        return bytes(found)
    return bytes(0 if guess == value else NEW for guess, value in zip(_guesses(rule, known), column, strict=True))


def recalled(
    rule: Rule, found: bytes, literals: Iterable[str], lines: Sequence[int], known: Mapping[int, Sequence[str]]
) -> list[str]:
    """The column, from its ranks and the values that are new.

    Raises:
        LookupError, ValueError: They do not belong together.
    """
    values = iter(literals)
    column: list[str] = []
    if rule.name == LAST:  # most columns; as below, without a list for each line
        last: dict[int, str] = {}
        for line, rank in zip(lines, found, strict=True):
            if rank == NEW:
                last[line] = next(values)
            elif rank:
                raise ValueError(f"{LAST!r} gives one value, not one that is {rank} back")
            column.append(last[line])
        return column
    if (most := _REMEMBERED.get(rule.name)) is not None:
        memory: dict[int, list[str]] = {}
        for line, rank in zip(lines, found, strict=True):
            before = memory.setdefault(line, [])
            column.append(next(values) if rank == NEW else before[rank])
            _remember(before, rank, column[-1], most)
        return column
    for rank, guess in zip(found, _guesses(rule, known), strict=True):
        if rank not in (0, NEW):
            raise ValueError(f"{rule.name!r} gives one value, not one that is {rank} back")
        column.append(next(values) if rank else guess)
    return column


def _remember(values: list[str], rank: int, value: str, most: int) -> None:
    """Put a value first, from where it was."""
    if rank != NEW:
        del values[rank]
    values.insert(0, value)
    del values[most:]


def best_rule(column: Sequence[str], lines: Sequence[int], known: Mapping[int, Sequence[str]]) -> tuple[Rule, bytes]:
    """The rule that gives all but the fewest values, and its ranks.

    Args:
        known: The columns of the same form that a reader will have by then, by place, in their order.
    """
    best = _better(None, Rule(LAST), column, lines, known)
    if best[2] > len(set(lines)):  # each line has a first value, which no row before it tells
        places = {int(share * (len(column) - 1)) for share in _PLACES}
        for before, other in known.items():
            if any(other[place] == column[place] for place in places):
                best = _better(best, Rule(COPY, before), column, lines, known)
            if (factor := _factor(column, other, places)) is not None:
                best = _better(best, Rule(TIMES, before, factor), column, lines, known, _BETTER)
    rule, found, new = best
    if rule.name == LAST and len({*zip(lines, column, strict=True)}) < _FEWER * new:
        rule = Rule(RECENT)
        found = ranks(rule, column, lines, known)
    return rule, found


def _better(
    best: tuple[Rule, bytes, int] | None,
    rule: Rule,
    column: Sequence[str],
    lines: Sequence[int],
    known: Mapping[int, Sequence[str]],
    share: float = 1.0,
) -> tuple[Rule, bytes, int]:
    found = ranks(rule, column, lines, known)
    count = found.count(NEW)
    return (rule, found, count) if best is None or count < share * best[2] else best


def _factor(column: Sequence[str], other: Sequence[str], places: Iterable[int]) -> float | None:
    """What the values of one column are times those of another at most of some places, if anything."""
    pairs = [(_number(column[place]), _number(other[place])) for place in places]
    factors = [ours / theirs for ours, theirs in pairs if ours and theirs]
    for factor in factors:
        if factor != 1 and 2 * sum(one == factor for one in factors) > len(factors):
            return factor
    return None


def _guesses(rule: Rule, known: Mapping[int, Sequence[str]]) -> Iterable[str]:
    if rule.of is None:
        raise ValueError(f"{rule.name!r} predicts from another column")
    if rule.name == COPY:
        return known[rule.of]
    if rule.name != TIMES:
        raise ValueError(f"{rule.name!r} is no rule")
    return [_times(value, rule.factor) for value in known[rule.of]]


def _number(value: str) -> float | None:
    """Of a value that is a number with a point, as counts of operations and shares are written."""
    return float(value) if "." in value and value[0] in "-0123456789" else None


def _times(value: str, factor: float) -> str:
    number = _number(value)
    return value if number is None else repr(number * factor)
