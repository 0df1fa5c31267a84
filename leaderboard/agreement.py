"""What a table of the paper and ours agree on, in sentences: each stands where its condition on both holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from .beside import BEYOND, DEFAULT, MISSING, Beside, Line, Value, is_paper
from .wording import capitalised

_AT = 0.15  # the level whose order is told in detail, and the nearest one to it
_KINDS = {"written": "generative", "likelihood": "log-likelihood", "seconds": "timed"}
_FEWEST = 3  # columns of a group in which a row may be called flat


def said_of(found: Beside) -> list[str]:
    """The sentences, what was not measured last."""
    if all(line.label is None for line in found.lines):
        return [f"Table {found.table['table']} is {MISSING}. {commands_of(found)}"]
    parts = [_orders, _same_model, _means, _stand_ins, _gateskip, _flat, _kept, _models, _bits, _faster, _missing]
    return [text for part in parts for text in part(found)]


def commands_of(found: Beside) -> str:
    """What makes the table: on the generated tasks, and on the paper's models."""
    presets = found.table["presets"]
    parts = [
        f"{where}: {' and '.join(f'`{one}`' for one in presets[kind])}"
        for kind, where in (("nano", "On the nano model"), ("paper", "On the paper's models"))
        if presets[kind]
    ]
    return ". ".join(parts) + "."


def groups_of(found: Beside) -> Iterator[tuple[str, range]]:
    """Columns that belong together, with their name."""
    start = 0
    for name, count in found.table["groups"] or [("", len(found.columns))]:
        yield name, range(start, start + count)
        start += count


def _lead(name: str) -> str:
    return f"{name}: " if name else ""


def _same_model(found: Beside) -> Iterator[str]:
    """Numbers are held to each other where the model is the paper's; else only orders are."""
    theirs, ours = found.table["model"], found.model
    if theirs is None:
        return
    if ours is None or ours.rpartition("/")[2] != theirs.rpartition("/")[2]:  # a folder has the last part alone
        yield f"The paper's model is {theirs}, ours {ours}: orders are compared, not numbers."
        return
    pairs = [(them, us) for line in found.lines for them, us in zip(line.theirs, line.ours, strict=True) if them and us]
    within = [us for (mean, deviation), us in pairs if abs(us.mean - mean) <= 2 * deviation]
    if any(deviation for (_, deviation), _ in pairs):
        yield f"{len(within)} of {len(pairs)} values lie within two of the paper's standard deviations."


def _means(found: Beside) -> Iterator[str]:
    """Which tasks a mean of ours is over, where the table has means."""
    told = [f"{_KINDS[kind]} tasks are {_listed(list(tasks))}" for kind, tasks in found.means.items()]
    if told:
        yield f"Here the {', the '.join(told)}."


def _stand_ins(found: Beside) -> Iterator[str]:
    if found.stand_ins:
        told = ", ".join(f"{ours} for {theirs}" for theirs, ours in found.stand_ins.items())
        yield f"Generated tasks stand in for the paper's: {told}."


def _measured(found: Beside, column: int) -> list[tuple[Line, tuple[float, float], Value]]:
    """Rows that both have a value of."""
    return [
        (line, them, us)
        for line in found.lines
        if (them := line.theirs[column]) is not None and (us := line.ours[column]) is not None
    ]


def _their_order(one: tuple[float, float], other: tuple[float, float], *, lower: bool) -> bool | None:
    """Whether the paper has one ahead of the other; `None` within their standard deviations."""
    apart = abs(one[0] - other[0]) > one[1] + other[1]
    return (one[0] > other[0]) != lower if apart else None


def _orders(found: Beside) -> Iterator[str]:
    """How many pairs of rows stand in the order that the paper has."""
    for name, columns in groups_of(found):
        same = other = unknown = 0
        for column in columns:
            for (a, a_theirs, a_ours), (b, b_theirs, b_ours) in combinations(_measured(found, column), 2):
                theirs = _their_order(a_theirs, b_theirs, lower=a_ours.lower_is_better)
                if theirs is None or a.name == b.name or not _comparable(a, b):
                    continue
                ours = a_ours.ahead_of(b_ours)
                same, other, unknown = same + (ours == theirs), other + (ours == (not theirs)), unknown + (ours is None)
        if count := same + other + unknown:
            pairs = f"{count} pair{'' if count == 1 else 's'} of values"
            yield capitalised(
                f"{_lead(name)}of {pairs} that the paper tells apart, {same} stand in the same order here, {other} in "
                f"the other one, and {unknown} are not told apart (their 95 % intervals overlap)."
            )


def _gateskip(found: Beside) -> Iterator[str]:
    """Whom the paper's own method is ahead of, there and here, at the level nearest to 15 %."""
    for name, columns in groups_of(found):
        known = [column for column in columns if len(_measured(found, column)) > 1]
        if not known:
            continue
        column = min(known, key=lambda one: abs(found.table["asks"][one][1] - _AT))
        measured = _measured(found, column)
        for line, theirs, ours in (one for one in measured if _is_own(one[0])):
            yield from _standing_of(found, name, column, line, theirs, ours)


def _standing_of(
    found: Beside, name: str, column: int, line: Line, theirs: tuple[float, float], ours: Value
) -> Iterator[str]:
    sides: dict[str, list[str]] = {"ahead": [], "behind": [], "open": []}
    there: dict[str, list[str]] = {"ahead": [], "behind": []}
    for other, other_theirs, other_ours in _measured(found, column):
        if _is_own(other) or not _comparable(line, other):
            continue
        if (order := _their_order(theirs, other_theirs, lower=ours.lower_is_better)) is not None:
            there["ahead" if order else "behind"].append(other.name)
        verdict = ours.ahead_of(other_ours)
        side = "open" if verdict is None else "ahead" if verdict else "behind"
        sides[side].append(f"{other.name} ({other.label})")
    if any(sides.values()):
        at = f"{100 * found.table['asks'][column][1]:.4g} %"
        yield (
            f"{_lead(name)}at {at} the paper has {line.name} ahead of {_listed(there['ahead'])} and behind "
            f"{_listed(there['behind'])}; here {line.label} is ahead of {_listed(sides['ahead'])}, behind "
            f"{_listed(sides['behind'])}, and not told apart from {_listed(sides['open'])}."
        )


def _flat(found: Beside) -> Iterator[str]:
    """Methods whose dial moves no score in the paper: whether it does here."""
    for name, columns in groups_of(found):
        for line in found.lines:
            theirs = [line.theirs[column] for column in columns]
            if len(theirs) < _FEWEST or None in theirs or len(set(theirs)) > 1:
                continue
            ours = [value for column in columns if (value := line.ours[column]) is not None]
            if len(ours) < 2:
                continue
            best = max(ours, key=lambda value: value.mean)
            worst = min(ours, key=lambda value: value.mean)
            moves = best.ahead_of(worst) is not None
            first = line.shown[columns.start]
            yield (
                f"{_lead(name)}{line.name} scores {first} at every level in the paper; here {line.label} goes from "
                f"{worst.shown} to {best.shown}"
                + (", with intervals apart." if moves else ", which its intervals do not tell apart.")
            )


def _kept(found: Beside) -> Iterator[str]:
    """What the paper's method keeps of its own score from the first to the last level that both have."""
    for name, columns in groups_of(found):
        own = {line.label: line for line in reversed(found.lines) if _is_own(line)}  # a default stands in every section
        for line in own.values():
            both = [column for column in columns if line.theirs[column] is not None and line.ours[column] is not None]
            if len(both) < 2 or found.table["asks"][both[0]][1] != 0:
                continue
            first, last = both[0], both[-1]
            (start, _), (end, _) = line.theirs[first], line.theirs[last]  # type: ignore[misc]
            ours, left = line.ours[first], line.ours[last]
            assert ours is not None and left is not None
            if not ours.scores or not start or not ours.mean:
                continue
            at = f"{100 * found.table['asks'][last][1]:.4g} %"
            keeps = f"{_lead(name)}at {at} {line.name} keeps {100 * end / start:.0f} %"
            yield (
                f"{keeps} of its own score at 0 % in the paper ({line.shown[first]} to {line.shown[last]}), here "
                f"{line.label} {100 * left.mean / ours.mean:.0f} % ({ours.shown} to {left.shown})."
            )


def _models(found: Beside) -> Iterator[str]:
    """What each of several models keeps of its own score at the last level: the range of the paper's, and ours."""
    beyond = [line for line in found.lines if line.name == BEYOND]
    if found.table["model"] is not None or not beyond:
        return
    for name, columns in groups_of(found):
        first, last = columns[0], columns[-1]
        there = [
            100 * end[0] / whole[0]
            for line in found.lines
            if (end := line.theirs[last]) is not None and (whole := line.theirs[first]) is not None
        ]
        here = [
            f"{line.label} {100 * left.mean / start.mean:.0f} % ({start.shown} to {left.shown})"
            for line in beyond
            if (start := line.ours[first]) is not None and (left := line.ours[last]) is not None and start.mean
        ]
        if here:
            at = f"{100 * found.table['asks'][last][1]:.4g} %"
            yield (
                f"{_lead(name)}at {at} the paper's models keep {min(there):.0f} to {max(there):.0f} % of their own "
                f"score at 0 %, here {_listed_all(here)}."
            )


def _bits(found: Beside) -> Iterator[str]:
    """What quantizing keeps of the score at each level, there and here; and where the paper has no difference."""
    forms = {row["name"] for row in found.table["rows"] if "recipe" in row}
    own = [line for line in found.lines if line.name not in forms and line.name != BEYOND]
    for name, columns in groups_of(found):
        for line in (one for one in found.lines if one.name in forms or one.name == BEYOND):
            full = next((one for one in own if line.label and one.label == line.label.rpartition(", ")[0]), None)
            if full is not None:
                yield from _bits_of(found, name, columns, full, line)


def _bits_of(found: Beside, name: str, columns: range, full: Line, line: Line) -> Iterator[str]:
    asks = found.table["asks"]
    both = [
        (asks[at][1], ours, before)
        for at in columns
        if (ours := line.ours[at]) is not None and (before := full.ours[at]) is not None and before.mean
    ]
    if not both:
        return
    levels = _listed([f"{100 * level:.4g}" for level, *_ in both])
    here = _listed_all([f"{100 * ours.mean / before.mean:.3g}" for _, ours, before in both])
    pairs = [
        (asks[at][1], theirs[0], whole[0])
        for at in columns
        if (theirs := line.theirs[at]) is not None and (whole := full.theirs[at]) is not None
    ]
    there = _listed_all(
        [f"{100 * theirs / before:.3g}" for level, theirs, before in pairs if level in {one for one, *_ in both}]
    )
    paper = f"; {line.name} keeps {there} % of {full.name} in the paper" if pairs else ""
    keeps = f"{line.label} keeps {here} % of the score of {full.label}"
    yield f"{_lead(name)}at {levels} % of skipped tokens {keeps}{paper}."
    if len(pairs) >= _FEWEST and all(theirs == before for _, theirs, before in pairs):
        differ = sum(ours.mean != before.mean for _, ours, before in both)
        yield (
            f"{_lead(name)}all {len(pairs)} values of {line.name} are those of {full.name} in the paper; {differ} of "
            f"{len(both)} of {line.label} differ here."
        )


def _faster(found: Beside) -> Iterator[str]:
    """How many times shorter, or longer, what takes time becomes from the first to the last level."""
    for line in found.lines:
        asks = found.table["asks"]
        both = [
            column
            for column, (what, _) in enumerate(asks)
            if what == "seconds" and line.theirs[column] and line.ours[column]
        ]
        if len(both) < 2:
            continue
        (start, _), (end, _) = line.theirs[both[0]], line.theirs[both[-1]]  # type: ignore[misc]
        ours, left = line.ours[both[0]], line.ours[both[-1]]
        assert ours is not None and left is not None
        levels = f"From {100 * asks[both[0]][1]:.4g} to {100 * asks[both[-1]][1]:.4g} % of skipped tokens"
        here = f"the time of {line.label} here {_times(ours.mean, left.mean)}"
        yield f"{levels} the paper's latency is {_times(start, end)}, {here}."


def _times(start: float, end: float) -> str:
    return f"divided by {start / end:.2f}" if end <= start else f"multiplied by {end / start:.2f}"


def _missing(found: Beside) -> Iterator[str]:
    """Rows and columns without a record."""
    rows = list(dict.fromkeys(line.name for line in found.lines if line.label is None))
    if rows:
        yield f"{capitalised(MISSING)}: {_listed(rows)}."
    columns = [
        title
        for column, title in enumerate(found.columns)
        if all(line.ours[column] is None for line in found.lines) and any(line.theirs[column] for line in found.lines)
    ]
    if columns:
        yield f"No method here has a value of: {'; '.join(columns)}."


def _comparable(one: Line, other: Line) -> bool:
    """Whether rows are of one section; and variants of one method of the same semantics, which would differ else."""
    method, semantics = _variant(one)
    return one.section == other.section and (method != _variant(other)[0] or semantics == _variant(other)[1])


def _variant(line: Line) -> tuple[str, bool]:
    """The method of a row, and whether in its paper's semantics."""
    return re.split(r"[\[@,]", line.label or "", maxsplit=1)[0], is_paper(line)


def _is_own(line: Line) -> bool:
    """Whether a row is the paper's own method as it stands."""
    name = line.name.partition(" (")[0]
    return name == "GateSkip" or DEFAULT in line.name


def _listed_all(texts: list[str]) -> str:
    return ", ".join(texts)


def _listed(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"
