"""Values of a column that follow from others: what a rule predicts rightly needs no value of its own.

A column has the values of one place of a form, in rows that are sorted by line, then by file: what different files
have on the same line (a document, a step of training) stands together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

LAST: Final = "last"
COPY: Final = "copy"
TIMES: Final = "times"
_LOOKED_AT: Final = 12  # columns before one whose values may decide its own
_BETTER: Final = 0.8  # of the misses of another rule, for one that costs more to note
_PLACES: Final = (0.0, 0.3, 0.5, 0.8, 1.0)  # of a column, where a rule is tried before all of it is


class Rule(NamedTuple):
    """How values are predicted.

    Attributes:
        name: `LAST`, the value that the last row of the same line had (where column `of` is given: of those rows that
            have the same value there); `COPY`, the value of column `of`; `TIMES`, that value times `factor`.
        of: Place of a column that is known already.
    """

    name: str
    of: int | None = None
    factor: float = 1.0


def missed(rule: Rule, column: Sequence[str], lines: Sequence[int], known: Mapping[int, Sequence[str]]) -> bytes:
    """For each row whether the rule predicts another value: 1 if so."""
    if rule.name != LAST:
        return bytes(guess != value for guess, value in zip(_guesses(rule, known), column, strict=True))
    memory: dict[object, str] = {}
    found = bytearray()
    for key, value in zip(_keys(rule, lines, known), column, strict=True):
        found.append(memory.get(key) != value)
        memory[key] = value
    return bytes(found)


def recalled(
    rule: Rule, misses: bytes, literals: Iterable[str], lines: Sequence[int], known: Mapping[int, Sequence[str]]
) -> list[str]:
    """The column, from its misses and what stood at them.

    Raises:
        LookupError, ValueError: They do not belong together.
    """
    values = iter(literals)
    if rule.name != LAST:
        guesses = _guesses(rule, known)
        return [next(values) if miss else guess for miss, guess in zip(misses, guesses, strict=True)]
    memory: dict[object, str] = {}
    column = []
    for key, miss in zip(_keys(rule, lines, known), misses, strict=True):
        if miss:
            memory[key] = next(values)
        column.append(memory[key])
    return column


def best_rule(column: Sequence[str], lines: Sequence[int], known: Mapping[int, Sequence[str]]) -> tuple[Rule, bytes]:
    """The rule that misses the fewest values, and where it does.

    Args:
        known: The columns of the same form that a reader will have by then, by place, in their order.
    """
    fewest = len(set(lines))  # each line has a first value, which no row before it tells
    best: tuple[Rule, bytes, int] | None = None
    for of in (None, *reversed([*known][-_LOOKED_AT:])):
        best = _better(best, Rule(LAST, of), column, lines, known)
        if best[2] <= fewest:
            break
    assert best is not None
    if best[2] > 1:
        places = {int(share * (len(column) - 1)) for share in _PLACES}
        for before, other in known.items():
            if any(other[place] == column[place] for place in places):
                best = _better(best, Rule(COPY, before), column, lines, known)
            if (factor := _factor(column, other, places)) is not None:
                best = _better(best, Rule(TIMES, before, factor), column, lines, known, _BETTER)
    return best[0], best[1]


def _better(
    best: tuple[Rule, bytes, int] | None,
    rule: Rule,
    column: Sequence[str],
    lines: Sequence[int],
    known: Mapping[int, Sequence[str]],
    share: float = 1.0,
) -> tuple[Rule, bytes, int]:
    misses = missed(rule, column, lines, known)
    count = sum(misses)
    return (rule, misses, count) if best is None or count < share * best[2] else best


def _factor(column: Sequence[str], other: Sequence[str], places: Iterable[int]) -> float | None:
    """What the values of one column are times those of another at most of some places, if anything."""
    pairs = [(_number(column[place]), _number(other[place])) for place in places]
    factors = [ours / theirs for ours, theirs in pairs if ours and theirs]
    for factor in factors:
        if factor != 1 and 2 * sum(one == factor for one in factors) > len(factors):
            return factor
    return None


def _keys(rule: Rule, lines: Sequence[int], known: Mapping[int, Sequence[str]]) -> Iterable[object]:
    return lines if rule.of is None else zip(lines, known[rule.of], strict=True)


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
