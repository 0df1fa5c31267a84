"""What a board found, in sentences with their figures and intervals: written from its rows, nothing by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from adaptive_bench import output
from adaptive_bench.errors import UsageError
from adaptive_bench.metric import metric_of
from adaptive_bench.spec import method_name
from adaptive_bench.tables.comparison import Difference

from .frame import Board, read_board
from .grid import AXES, Grid, grids, marks, percent
from .paired import Comparison
from .paper import paper_tables
from .plain import markdown
from .provenance import variants_of
from .row import Row
from .rows import first_metrics
from .tables import FAMILY_OF_CONTROLS, difference, p_value

_LEVEL = 0.15  # of the paper's second table
_PAPER_COLUMN = 3  # 15 % of the generative tasks in its first
_CLAIM_GAP = 0.02
_PHASE_GAP = 0.05
_VECTOR, _SCALAR = "gateskip", "gateskip[shape=scalar]"  # whatever they were tuned to


def findings(board: Board, axis: str = "net", level: float = _LEVEL, note: str = "") -> str:
    """Markdown: sentences about the methods at one level, for the first metric of each task; a `note` goes first.

    A difference is stated as one only where the paired test of its column says so, corrected for all its pairs.
    """
    first = first_metrics(board.rows)
    rows = [row for row in board.rows if row.metric == first[row.task] and row.level == level]
    rows = [row for row in rows if row.score is not None and row.phase == "all"]
    models = dict.fromkeys(markdown(row.model) for row in rows if row.model)
    parts = [
        f"# Findings: {', '.join(models)}" if models else "# Findings",
        *([note] if note else []),
        f"Figures at {100 * level:.4g} % saved unless another level is named, with 95 % intervals; differences in the "
        "unit of the score. Ranks are what tests of all pairs of a column leave open, at 5 % for all of them together; "
        "p is corrected, and the interval of a difference has the confidence of its test.",
        *_section("Which methods are ahead", _order(board, rows, axis)),
        *_section("Who is better than static depth", _static(board, rows, axis)),
        *_section("The order beside the paper's Table 1", _paper(board, rows)),
        *_section("Why the order differs", _reasons(board, rows)),
        *_section("What random controls show", _controls(board, rows, axis)),
        *_section("What vector gates cost", _gates(board, rows, axis)),
        *_section("Claimed and executed", _claims(rows, axis)),
        *_section("Prefill and decode", _phases(rows, axis)),
        *_section("Marks", (f"{mark} {meaning}." for mark, meaning in _marks(rows))),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, sentences: Iterator[str]) -> list[str]:
    found = [f"- {sentence}" for sentence in sentences]
    return [f"## {title}", "\n".join(found)] if found else []


def _columns(board: Board, rows: Sequence[Row], axis: str) -> Iterator[tuple[Grid, float, Comparison]]:
    for grid in grids(row for row in rows if row.axis == axis):
        level = grid.levels[0]
        found = board.comparisons.get((grid.place, level))
        if found is not None:
            yield grid, level, found


def _order(board: Board, rows: Sequence[Row], axis: str) -> Iterator[str]:
    for grid, level, found in _columns(board, rows, axis):
        told = "; ".join(f"`{name}` {_shown(grid, name, level)}, rank {_rank(found, name)}" for name in found.order)
        yield f"**{markdown(grid.name)}** by {AXES[axis]}: {told}."


def _static(board: Board, rows: Sequence[Row], axis: str) -> Iterator[str]:
    """The question of the protocol: who is better than skipping the same layers for every token."""
    for grid, level, found in _columns(board, rows, axis):
        if found.static is None:
            continue
        told = "; ".join(
            f"{relation} {', '.join(f'`{name}` {_difference(grid, over)}' for name, over in some.items()) or 'none'}"
            for relation, some in _by_relation(found, found.over_static).items()
        )
        yield (
            f"**{markdown(grid.name)}**, `{found.static}` {_shown(grid, found.static, level)}, p corrected for "
            f"{len(found.over_static)} comparisons with it: {told}."
        )


def _paper(board: Board, rows: Sequence[Row]) -> Iterator[str]:
    known = [
        (float(row["values_"][_PAPER_COLUMN].partition(" ± ")[0]), row["name"], row["values_"][_PAPER_COLUMN])
        for row in paper_tables()[0]["rows"]
        if row["values_"][_PAPER_COLUMN]
    ]
    for grid, _, found in _columns(board, rows, "tokens"):
        ours = ", ".join(f"`{name}` ({_rank(found, name)})" for name in found.order)
        yield f"**{markdown(grid.name)}** by saved tokens, best first, rank in brackets: {ours}."
    if any(row.axis == "tokens" for row in rows):
        order = ", ".join(f"{name} {text}" for _, name, text in sorted(known, reverse=True))
        yield f"The paper, mean of its written tasks at 15 % on Llama-3.2-1B: {order}."


def _reasons(board: Board, rows: Sequence[Row]) -> Iterator[str]:
    """What was measured of the ways in which counting tokens differs from counting what is saved."""
    for grid, level, _ in _columns(board, rows, "tokens"):
        saved = [(row.saved_net, name) for (name, at), row in grid.cells.items() if at == level]
        less = sorted((net, name) for net, name in saved if net is not None and level - net > _PHASE_GAP)
        if less:
            told = ", ".join(f"`{name}` {_share(net)}" for net, name in less)
            yield (
                f"**{markdown(grid.name)}**: the paper counts tokens. Of those who skip {percent(level)} % of the "
                f"token-branches, these save much less net: {told}."
            )
    tasks = {(row.task, row.metric) for row in rows}
    variants = variants_of(board.folders)
    for grid in grids(row for row in board.rows if (row.axis, row.phase) == ("tokens", "all")):
        gated = [name for name in grid.methods if variants.get(name, name) == _VECTOR and (name, 0.0) in grid.cells]
        if (grid.task, grid.metric) in tasks and gated and ("dense", 0.0) in grid.cells:
            told = ", ".join(f"`{name}` {_shown(grid, name, 0.0)}" for name in gated)
            yield (
                f"**{markdown(grid.name)}**: without skipping `dense` has {_shown(grid, 'dense', 0.0)}, {told}. What "
                f"it lacks there, skipping did not cost."
            )
    if tasks:
        yield (
            "The paper's models have a billion parameters and more. No interval of this board says how far its order "
            "holds for models that differ from its own."
        )


def _controls(board: Board, rows: Sequence[Row], axis: str) -> Iterator[str]:
    for grid, level, found in _columns(board, rows, axis):
        chance = [name for name in found.order if method_name(name) == "random_skip"]
        for control in chance:
            over = {name: found.over(name, control) for name in found.order if name != control}
            ahead, behind, unknown = _by_relation(found, over).values()
            first = next(iter(ahead), None)
            best = f", `{first}` by {_difference(grid, ahead[first])}" if first is not None else ""
            yield (
                f"**{markdown(grid.name)}**, `{control}` {_shown(grid, control, level)}: {len(ahead)} of "
                f"{len(ahead) + len(behind) + len(unknown)} methods are ahead of it{best}; behind it: "
                f"{_names(behind)}; not separated from it: {_names(unknown)}."
            )


def _gates(board: Board, rows: Sequence[Row], axis: str) -> Iterator[str]:
    variants = variants_of(board.folders)
    for grid, level, found in _columns(board, rows, axis):
        ours = {variants.get(name, name): name for name in reversed(found.order)}
        if _VECTOR not in ours or _SCALAR not in ours:
            continue
        both = (ours[_VECTOR], ours[_SCALAR])
        better, worse = sorted(both, key=found.order.index)
        told = "is ahead of" if found.apart(better, worse) else "is not told apart from"
        skipped = [_share(grid.cells[name, level].saved_tokens) for name in both]
        yield (
            f"**{markdown(grid.name)}**: `{better}` {told} `{worse}`, {_difference(grid, found.over(better, worse))}. "
            f"For the same {percent(level)} % {AXES[axis]} vector gates skip {skipped[0]} of the token-branches, "
            f"scalar gates {skipped[1]}."
        )
    for row in board.rows:
        place = (method_name(row.method), row.axis, row.level, row.phase)
        if place == ("gated", "tokens", 0.0, "all") and row.score:
            told = f"`{row.label}`, {markdown(row.task)}"
            yield f"Gates that skip nothing ({told}) save {_share(row.saved_net)} net."
            break


def _claims(rows: Sequence[Row], axis: str) -> Iterator[str]:
    for row in rows:
        gap = row.claimed_minus_executed
        if row.axis == axis and row.claimed is not None and gap is not None and abs(gap) > _CLAIM_GAP:
            yield (
                f"`{row.label}` on {markdown(row.task)} claims to skip {_share(row.claimed)} of the "
                f"token-branches; {_share(row.claimed - gap)} were skipped."
            )


def _phases(rows: Sequence[Row], axis: str) -> Iterator[str]:
    for row in rows:
        prefill, decode = row.saved_prefill_net, row.saved_decode_net
        if row.axis != axis or prefill is None or decode is None:
            continue
        if abs(prefill - decode) > _PHASE_GAP:
            yield (
                f"`{row.label}` on {markdown(row.task)}: net saving {_share(prefill)} in prefill, {_share(decode)} "
                f"in decode."
            )


def _marks(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(mark for row in rows for mark in marks(row)))


def _shown(grid: Grid, name: str, level: float) -> str:
    unit = " %" if metric_of(grid.metric).unit == "share" else ""
    return f"{grid.score(name, level)}{unit}"


def _by_relation(found: Comparison, over: Mapping[str, Difference | None]) -> dict[str, dict[str, Difference | None]]:
    """The methods that are no controls, by how they stand to a control that they are ahead of by `over`."""
    some: dict[str, dict[str, Difference | None]] = {"ahead": {}, "behind": {}, "not separated": {}}
    for name in found.order:
        if name not in over or method_name(name) in FAMILY_OF_CONTROLS:
            continue
        by = over[name]
        apart = by is not None and by.apart
        some["not separated" if by is None or not apart else "ahead" if by.difference > 0 else "behind"][name] = by
    return some


def _names(methods: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in methods) or "none"


def _rank(found: Comparison, name: str) -> str:
    low, high = found.ranks[name]
    return f"{low}" if low == high else f"{low} to {high}"


def _difference(grid: Grid, found: Difference | None) -> str:
    if found is None:
        return "which cannot be tested"
    low, high = (difference(grid.metric, end) for end in (found.low, found.high))
    return f"{difference(grid.metric, found.difference)} [{low}, {high}], p {p_value(found.p)}"


def _share(value: float | None) -> str:
    return "an unknown share" if value is None else f"{percent(value)} %"


def write_findings(
    tables: Sequence[Path], out: Path, axis: str = "net", level: float = _LEVEL, note: str = ""
) -> list[str]:
    """Write `findings` of some `table.json`; what was left out of the board, one sentence each.

    Raises:
        UsageError: No method has a score at the level.
    """
    board = read_board(tables)
    there = sorted({row.level for row in board.rows if row.axis == axis and row.score is not None})
    if level not in there:
        raise UsageError(
            f"Findings are about a level of the table, got {level:g} on the axis {axis}. There is "
            f"{', '.join(f'{one:g}' for one in there) or 'none'}."
        )
    output.write_text(out, findings(board, axis, level, note))
    return list(board.problems)
