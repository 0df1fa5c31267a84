"""How sentences of findings name methods and say how they differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from adaptive_bench.spec import method_name
from adaptive_bench.tables.comparison import Difference

from .grid import STATIC, Grid
from .tables import FAMILY_OF_CONTROLS, difference, p_value

Marks = Mapping[str, str]  # by label what stands behind a name where something is said of it
Over = Mapping[str, Difference | None]  # by label how far a method is ahead of a control; `None` where nothing tells


def is_static(name: str) -> bool:
    """Whether a label is that of a control, or of a method that treats all tokens alike."""
    return method_name(name) in (*FAMILY_OF_CONTROLS, *STATIC)


def beside_static(over: Over) -> list[Over]:
    """Methods that decide per token, and those that do not and are no control."""
    own = {name: by for name, by in over.items() if not is_static(name)}
    return [own, {name: by for name, by in over.items() if method_name(name) in STATIC[1:]}]


def by_relation(over: Over) -> dict[str, dict[str, Difference | None]]:
    """Methods by how they stand to a control, best first."""
    some: dict[str, dict[str, Difference | None]] = {"ahead": {}, "behind": {}, "not separated": {}}
    for name, by in sorted(over.items(), key=lambda one: -math.inf if one[1] is None else -one[1].difference):
        apart = by is not None and by.apart
        some["not separated" if by is None or not apart else "ahead" if by.difference > 0 else "behind"][name] = by
    return some


def with_differences(grid: Grid, some: Over, marked: Marks) -> str:
    """Methods in a sentence, each with its difference."""
    return ", ".join(f"{named(name, marked)} {tested(grid, by)}" for name, by in some.items()) or "none"


def listed(methods: Iterable[str], marked: Marks | None = None) -> str:
    """Methods in a sentence."""
    return ", ".join(named(name, marked or {}) for name in methods) or "none"


def capitalised(text: str) -> str:
    """A text as the beginning of a sentence: the rest of it, names among it, stays."""
    return text[:1].upper() + text[1:]


def named(name: str, marked: Marks) -> str:
    """One method with its marks."""
    return f"`{name}`{marked.get(name, '')}"


def tested(grid: Grid, found: Difference | None) -> str:
    """A difference with its interval and p, in the unit of the grid's metric."""
    if found is None:
        return "no test possible"
    low, high = (difference(grid.metric, end) for end in (found.low, found.high))
    return f"{difference(grid.metric, found.difference)} [{low}, {high}], p {p_value(found.p)}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
