"""The sentences of findings: each stands where its condition on rows and comparisons holds, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from adaptive_bench.metric import metric_of
from adaptive_bench.spec import method_name
from adaptive_bench.tables.comparison import Difference

from .against import at_own_savings, base_of, over_base
from .decisions import FLOOR, is_apart, is_floor
from .frame import Board
from .grid import AXES, Grid
from .headroom import headroom as about_headroom
from .marks import is_far, marks, other_layers
from .numbers import number, percent
from .paired import Comparison
from .paper import paper_tables
from .plain import markdown
from .row import Row
from .tables import difference
from .wording import (
    Marks,
    beside_static,
    by_relation,
    capitalised,
    is_static,
    listed,
    named,
    table,
    tested,
    with_differences,
)

_PAPER_COLUMN = 3  # 15 % of the generative tasks in its first table
_CLAIM_GAP = 0.02
_PHASE_GAP = 0.05
_TO_CONTROL = {"ahead": "ahead of it", "behind": "behind it", "not separated": "not separated from it"}
_VECTOR, _SCALAR = "gateskip", "gateskip[shape=scalar]"  # whatever they were tuned to


@dataclass(frozen=True)
class Column:
    """The methods of a task at one level of an axis.

    Attributes:
        grid: With all its levels.
        found: How the methods compare at the level.
    """

    grid: Grid
    level: float
    found: Comparison

    @property
    def task(self) -> str:
        return f"**{markdown(self.grid.name)}**"

    @property
    def marks(self) -> Marks:
        """Of the scores at the level."""
        return {name: "".join(mark for mark, _ in marks(self.row(name))) for name in self.found.order}

    def shown(self, name: str) -> str:
        """A method's score at the level."""
        return _shown(self.grid, name, self.level)

    def row(self, name: str) -> Row:
        return self.grid.cells[name, self.level]

    def other_sites(self, names: Iterable[str], control: str) -> str:
        """Who may skip elsewhere than a control, so that the two differ in more than the choice of tokens."""
        eligible = self.grid.eligible
        own = eligible.get(control)
        found = [(name, eligible.get(name)) for name in names]
        told = ", ".join(f"`{name}` {sites}" for name, sites in found if sites is not None and sites != own)
        if not told or own is None:
            return ""
        return f" These may skip at sites other than those of `{control}` ({own}): {told}."


def headroom(folders: Sequence[Path], tasks: Collection[str]) -> Iterator[str]:
    """Whether there is anything to decide on a task, where that was measured."""
    for name, text in about_headroom(folders, tasks):
        yield f"**{markdown(name)}**: {markdown(text)}"


def training(board: Board, columns: Iterable[Column]) -> Iterator[str]:
    """Who is better than the model before training, and who is worse, by how much."""
    rows: list[tuple[str, ...]] = []
    for column in columns:
        base = base_of(column.grid)
        if base is None:
            yield f"{column.task}: `base`, the model before training, was not measured."
            continue
        score = _shown(column.grid, base.label, 0.0)
        told = f"{column.task}: `{base.label}`, the model before training, scores {score}"
        over = over_base(board, column.grid, column.level)
        if not over:
            yield f"{told}; nothing was tested against it."
            continue
        ahead, behind, unknown = by_relation(over).values()
        yield (
            f"{told}; p is corrected for {len(over)} comparisons with it. Behind it: "
            f"{listed(behind, column.marks)}; not separated from it: "
            f"{listed(unknown, column.marks)}; ahead of it: {listed(ahead, column.marks)}."
        )
        rows += [(column.task, named(name, column.marks), tested(column.grid, by)) for name, by in behind.items()]
    if rows:
        yield table(("task", "worse than no training", "by"), rows)


def order(columns: Iterable[Column]) -> Iterator[str]:
    """The ranks that tests leave open."""
    for column in columns:
        grid, found = column.grid, column.found
        told = table(
            ("method", "score", "rank"),
            [(f"`{name}`", column.shown(name), _rank(found, name)) for name in found.order],
        )
        saving_nothing = [
            f"`{name}` {_shown(grid, name, 0.0)}"
            for name in grid.methods
            if method_name(name) in ("dense", "base") and (name, 0.0) in grid.cells and name not in found.order
        ]
        beside = f"\n\nNot ranked, as they save nothing: {', '.join(saving_nothing)}." if saving_nothing else ""
        yield f"{column.task} by {AXES[grid.axis]}:\n\n{told}{beside}"


def sites(columns: Iterable[Column]) -> Iterator[str]:
    """Who may skip where, or that nobody knows."""
    unknown: dict[str, list[str]] = {}
    for column in columns:
        by_sites = column.grid.by_sites
        if len(by_sites) > 1:
            told = "; ".join(f"{where}: {listed(names)}" for where, names in by_sites.items())
            yield f"{column.task}: methods differ in their eligible sites. {capitalised(told)}."
        if names := [name for name in column.found.order if column.row(name).eligible is None]:
            every = len(names) == len(column.found.order)
            unknown.setdefault("any method" if every else listed(names), []).append(column.task)
    for methods, tasks in unknown.items():
        yield (
            f"{', '.join(tasks)}: eligible sites were not recorded for {methods}, so a lead may come from the sites "
            f"alone."
        )


def static(board: Board, columns: Iterable[Column]) -> Iterator[str]:
    """The question of the protocol: who is better than skipping the same layers for every token. Asked at the level if
    the control was measured near it, else where the best control was measured that was trained for it.
    """
    rows: list[tuple[str, ...]] = []
    for column in columns:
        grid, control = column.grid, column.found.static
        if control is None:
            continue
        row = column.row(control)
        if not is_far(row) and not other_layers(row.trained_without, row.saved_tokens):
            over = column.found.over_static
            yield (
                f"{column.task}: `{control}` scores {column.shown(control)}; p is corrected for {len(over)} "
                f"comparisons with it. {_against(over, column.marks)}.{column.other_sites(over, control)}"
            )
            rows += _differences(column, column.level, over, column.marks)
            continue
        own = [one for one in at_own_savings(board, grid) if one.over]
        if not own:
            yield (
                f"{column.task}: no control that was trained for the layers it leaves out was measured at 5 to 30 %: "
                f"no comparison is made."
            )
        for one in own:
            score = _in_unit(grid, number(grid.metric, one.score))
            yield (
                f"{column.task}: {named(one.control, one.marks)} scores {score} at a saving of {percent(one.saving)} "
                f"%, where it was measured; p is corrected for {len(one.over)} comparisons with it. "
                f"{_against(one.over, one.marks)}.{column.other_sites(one.over, one.control)}"
            )
            rows += _differences(column, one.saving, one.over, one.marks)
    if rows:
        yield table(("task", "saved", "method", "ahead of the control by"), rows)


def choice(columns: Iterable[Column]) -> Iterator[str]:
    """Who loses how much with the decisions of other tokens, most first, where the control of shuffled decisions says
    it.
    """
    unknown = []
    for column in columns:
        adaptive = [column.row(name) for name in column.found.order if not is_static(name)]
        known = [row for row in adaptive if row.decisions_low is not None and row.decisions_high is not None]
        if not known:
            unknown.append(column.task)
            continue
        by_saying: dict[str, list[str]] = {saying: [] for saying in _SAYINGS}
        for row in sorted(known, key=lambda row: -(row.decisions_worth or 0.0)):
            by_saying[_said_of_choice(row)].append(_worth(row, column.marks))
        by_saying["not measured"] = [f"`{row.label}`" for row in adaptive if row not in known]
        told = "; ".join(f"{saying}: {', '.join(some)}" for saying, some in by_saying.items() if some)
        yield (
            f"{column.task}, score minus the score with the decisions of other tokens. {capitalised(told)}. "
            f"{_floor(column)}"
        )
    if unknown:
        yield f"{', '.join(unknown)}: not measured for any method (`run --shuffled`)."


_SAYINGS = (
    "loses with the decisions of other tokens",
    "no loss shown",
    "better with the decisions of other tokens",
    "not comparable (their net savings differ by more than 2 points)",
    "not comparable (the control was not measured at the method's dial values)",
)


def _said_of_choice(row: Row) -> str:
    """One of `_SAYINGS`."""
    assert row.decisions_low is not None and row.decisions_high is not None
    lost, unclear, better, apart, unshared = _SAYINGS
    if is_apart(row):
        return unshared if row.shuffled_apart is None else apart
    return lost if row.decisions_low > 0 else better if row.decisions_high < 0 else unclear


def _floor(column: Column) -> str:
    """What skipping by position alone loses, where that was measured."""
    floors = [row for row in map(column.row, column.found.order) if is_floor(row)]
    if not floors:
        return f"No floor: `{FLOOR}`, which skips by position alone, was not measured."
    told = ", ".join(_worth(row, column.marks) for row in floors)
    return f"The floor, skipping by position alone, regardless of the text: {told}."


def _worth(row: Row, marked: Marks) -> str:
    low, high = (difference(row.metric, end) for end in (row.decisions_low, row.decisions_high))
    return f"{named(row.label, marked)} {difference(row.metric, row.decisions_worth)} [{low}, {high}]"


def paper(columns: Sequence[Column]) -> Iterator[str]:
    """Two orders side by side, without a word on why they differ."""
    known = [
        (float(row["values"][_PAPER_COLUMN].partition(" ± ")[0]), row["name"], row["values"][_PAPER_COLUMN])
        for row in paper_tables()[0]["rows"]
        if row["values"][_PAPER_COLUMN]
    ]
    if not columns:
        return
    orders = [[f"`{name}` ({_rank(column.found, name)})" for name in column.found.order] for column in columns]
    theirs = [f"{name} {text}" for _, name, text in sorted(known, reverse=True)]
    header = (*(f"{column.task}, rank" for column in columns), "the paper")
    told = table(header, list(zip_longest(*orders, theirs, fillvalue="")))
    yield (
        f"By saved tokens, best first:\n\n{told}\n\n"
        "The paper's scores are means over its generative tasks at 15 % on Llama-3.2-1B. No interval of this board "
        "says how far its order holds for other models."
    )


def tokens(board: Board, columns: Iterable[Column]) -> Iterator[str]:
    """Where counting tokens differs from counting what is saved, and who lost something before anything was skipped."""
    for column in columns:
        grid, level = column.grid, column.level
        saved = [(column.row(name).saved_net, name) for name in column.found.order]
        less = sorted((net, name) for net, name in saved if net is not None and level - net > _PHASE_GAP)
        if less:
            told = ", ".join(f"`{name}` {percent(net)} %" for net, name in less)
            yield (
                f"{column.task}: of the methods that skip {percent(level)} % of the token-branches, these have a net "
                f"saving at least {100 * _PHASE_GAP:.0f} points lower: {told}."
            )
        start = board.comparisons.get((grid.place, 0.0))
        dense = None if start is None else next((name for name in start.order if method_name(name) == "dense"), None)
        if start is None or dense is None:
            continue
        nothing = Column(grid, 0.0, start)
        over = {name: start.over(name, dense) for name in start.order if method_name(name) not in ("dense", "base")}
        if behind := by_relation(over)["behind"]:
            yield (
                f"{column.task}: with no token-branches skipped, these are behind `{dense}` "
                f"{_shown(grid, dense, 0.0)}: {with_differences(grid, behind, nothing.marks)}."
            )


def random_controls(columns: Iterable[Column]) -> Iterator[str]:
    """Who is better than skipping by chance."""
    for column in columns:
        found = column.found
        for control in [name for name in found.order if method_name(name) == "random_skip"]:
            others = [name for name in found.order if not is_static(name)]
            over = {name: found.over(name, control) for name in others}
            ahead, behind, unknown = by_relation(over).values()
            first = next(iter(ahead), None)
            best = ""
            if first is not None:
                best = f" (best: {named(first, column.marks)} by {tested(column.grid, ahead[first])})"
            yield (
                f"{column.task}, `{control}` {column.shown(control)}: {len(ahead)} of {len(over)} methods that "
                f"decide per token are ahead of it{best}; behind it: {listed(behind, column.marks)}; not "
                f"separated from it: {listed(unknown, column.marks)}.{column.other_sites(over, control)}"
            )


def gates(columns: Iterable[Column], variants: Mapping[str, str]) -> Iterator[str]:
    """GateSkip's two shapes, where both are there."""
    for column in columns:
        found = column.found
        ours = {variants.get(name, name): name for name in reversed(found.order)}
        if _VECTOR not in ours or _SCALAR not in ours:
            continue
        both = (ours[_VECTOR], ours[_SCALAR])
        better, worse = sorted(both, key=found.order.index)
        told = "is ahead of" if found.apart(better, worse) else "is not told apart from"
        vector, scalar = (column.row(name).saved_tokens for name in both)
        skipped = ""
        if vector is not None and scalar is not None:
            skipped = (
                f" For the same {percent(column.level)} % {AXES[column.grid.axis]} vector gates skip "
                f"{percent(vector)} % of the token-branches, scalar gates {percent(scalar)} %."
            )
        yield (
            f"{column.task}: {named(better, column.marks)} {told} {named(worse, column.marks)}, "
            f"{tested(column.grid, found.over(better, worse))}.{skipped}{column.other_sites([better], worse)}"
        )


def idle_gates(rows: Iterable[Row]) -> Iterator[str]:
    """What gates save where they skip nothing, least first."""
    found = [
        (row.saved_net, f"`{row.label}` on {markdown(row.task)} {percent(row.saved_net)} %")
        for row in rows
        if (method_name(row.method), row.axis, row.level) == ("gated", "tokens", 0.0) and row.saved_net is not None
    ]
    if found:
        yield f"Gates that skip nothing save, net: {', '.join(text for _, text in sorted(found))}."


def claims(rows: Iterable[Row]) -> Iterator[str]:
    """Dials that claim what was not skipped, the widest gap first."""
    found = []
    for row in sorted(rows, key=lambda row: -abs(row.claimed_minus_executed or 0.0)):
        gap = row.claimed_minus_executed
        if row.claimed is not None and gap is not None and abs(gap) > _CLAIM_GAP:
            shares = (f"{percent(one)} %" for one in (row.claimed, row.claimed - gap))
            found.append((f"`{row.label}`", markdown(row.task), *shares))
    if found:
        yield table(("method", "task", "token-branches: claimed", "executed skips"), found)


def phases(rows: Iterable[Row]) -> Iterator[str]:
    """Savings that differ between prompts and what is written, the widest difference first."""
    found = []
    for row in sorted(rows, key=lambda row: -abs((row.saved_prefill_net or 0.0) - (row.saved_decode_net or 0.0))):
        prefill, decode = row.saved_prefill_net, row.saved_decode_net
        if prefill is not None and decode is not None and abs(prefill - decode) > _PHASE_GAP:
            shares = (f"{percent(one)} %" for one in (prefill, decode))
            found.append((f"`{row.label}`", markdown(row.task), *shares))
    if found:
        yield table(("method", "task", "net saving in prefill", "in decode"), found)


def _against(over: Mapping[str, Difference | None], marked: Marks) -> str:
    """How methods stand to a static control: those that decide per token, then those that do not and are no control."""
    adaptive, others = beside_static(over)
    told = [f"{_TO_CONTROL[relation]}: {listed(some, marked)}" for relation, some in by_relation(adaptive).items()]
    for relation, some in by_relation(others).items():
        where = f"of the methods that do not decide per token, {_TO_CONTROL[relation]}"
        told += [f"{where}: {listed(some, marked)}"] if some else []
    return capitalised("; ".join(told))


def _differences(
    column: Column, saving: float, over: Mapping[str, Difference | None], marked: Marks
) -> list[tuple[str, ...]]:
    """Rows of those that `_against` names, best first."""
    found = {name: by for some in beside_static(over) for name, by in some.items()}
    ordered = sorted(found.items(), key=lambda one: math.inf if one[1] is None else -one[1].difference)
    where = (column.task, f"{percent(saving)} %")
    return [(*where, named(name, marked), tested(column.grid, by)) for name, by in ordered]


def _rank(found: Comparison, name: str) -> str:
    low, high = found.ranks[name]
    return f"{low}" if low == high else f"{low} to {high}"


def _shown(grid: Grid, name: str, level: float) -> str:
    return _in_unit(grid, grid.score(name, level))


def _in_unit(grid: Grid, text: str) -> str:
    return f"{text} %" if metric_of(grid.metric).unit == "share" else text
