"""Ranked lists as text, for the terminal, Markdown and the page: sentences above a list, its cells, notes under it.

Every claim of a sentence is tested by a condition here and is left out if it does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_bench.task import metric_of

from .row import Row
from .standing import RULE, Line, Standing

AXES = {
    "layers": "of the layers' FLOPs saved",
    "net": "net FLOPs saved",
    "core": "core FLOPs saved",
    "tokens": "token-branches skipped",
    "claimed": "claimed saving",
    "bytes": "bytes saved",
}
_FACTOR = 2.0  # savings disagree if they differ by more
_NOTHING = 0.01  # a saving up to this counts as none
NONE = "–"
_MOST_NAMED = 4
MOST_LINES = 12  # lines of a list, unless all are asked for
_EXPONENT_FROM = 1e7  # numbers from here on are written with an exponent


def sentences(standing: Standing) -> list[str]:
    """What is said above a list: the headline, and whether the best method's saving is real, if that is known."""
    return [text for text in (headline(standing), is_real(standing)) if text]


def headline(standing: Standing) -> str:
    """At most 25 words: which row keeps most at this level, and how it compares with leaving out layers.

    The row with the highest score is named, unless it scores nothing. It beats leaving out layers if a test says so,
    corrected for all comparisons with the best static control. If the best row is such a control, nothing beats it, or
    nothing is shown to, if the test of some method leaves that open. If the rank intervals of other rows include the
    first place, the best row is level with them. If no number of layers meets the level, the score at the nearest
    saving is given.
    """
    at = f"At {100 * standing.level:.3g} %"
    if standing.left_out and not any(line.score is not None for line in standing.lines):
        return f"{at}, nothing is ranked: the dense model is not known to be clearly better than a guess."
    ranked = standing.ranked
    if not ranked:
        return f"{at}, nothing is ranked: no method was measured within a point of this saving on every task."
    best = ranked[0]
    if _keeps_nothing(best):
        return f"{at}, nothing is kept: no row scores above a guess, or the model before training."
    # The first of the ranked lines has nobody above it, so its interval begins at 1: it is taken off.
    tied = sum(line.rank is not None and line.rank[0] == 1 for line in ranked) - 1
    tie = f", level with {tied} other{'s' if tied > 1 else ''}" if tied else ""
    keeps = f"{best.label} {'keeps most' if ranked[1:] else 'alone meets this saving'} ({_points(best)} of 100){tie}"
    # The best row does not choose tokens: a claim about methods is made only if some were ranked.
    if best.chooses in ("never", "by chance"):
        others = [line for line in ranked if line.chooses not in ("never", "by chance")]
        settled = all(line.over_static is not None and line.over_static.apart for line in others)
        beats = "beats it" if not best.is_static else f"{'beats' if settled else 'is shown to beat'} leaving out layers"
        return f"{at}, {keeps}" + (f": nothing that chooses tokens {beats}." if others else ".")
    static = next((line for line in ranked if line.label == standing.static), None)
    if static is None:
        return f"{at}, {keeps}; leaving out layers {_elsewhere(standing)}."
    if best.over_static is not None and best.over_static.apart and best.over_static.difference > 0:
        return f"{at}, {keeps}, and beats leaving out layers ({_points(static)})."
    return f"{at}, {keeps}, not certainly more than leaving out layers ({_points(static)})."


def _elsewhere(standing: Standing) -> str:
    """What leaving out layers keeps at its saving nearest to the level, if it does not meet the level."""
    known = [line for line in standing.lines if line.is_static and line.score is not None and line.saved is not None]
    if not known:
        return "was not measured here"
    # Of two savings that are equally near, to a tenth of a percent, the one that keeps more: in favour of the control.
    line = min(known, key=lambda one: (round(abs((one.saved or 0.0) - standing.level), 3), -(one.score or 0.0)))
    return f"keeps {_points(line)} at {100 * (line.saved or 0.0):.3g} %"


def is_real(standing: Standing) -> str:
    """Whether the best method's saving is real, in at most 25 words; empty if nothing is ranked or kept."""
    best = next(iter(standing.ranked), None)
    if best is None or _keeps_nothing(best):
        return ""
    shape = next((one.projected_shape for one in best.rows if one and one.projected_shape), "a larger model")
    # Net FLOPs as executed, those of the same decisions at a larger shape, and time.
    savings = {"of net FLOPs": best.net, f"if priced at {shape}'s size": best.projected, "of the time": best.time}
    values = [value for value in savings.values() if value is not None]
    told = ", ".join(f"{100 * value:.0f} % {what}" for what, value in savings.items() if value is not None)
    # {True}: all save, {False}: none does, both: they contradict each other.
    signs = {value > _NOTHING for value in values}
    verdict = "It saves" if best.time is None else "Its saving holds by every measure:"
    if signs == {False}:
        verdict = "It saves nothing by any measure:"
    elif len(signs) > 1 or (signs and max(values) > _FACTOR * min(values)):
        verdict = "The measures of its saving disagree:"
    return f"{verdict} {told}{'; time was not measured (--time)' if best.time is None else ''}." if told else ""


def _keeps_nothing(line: Line) -> bool:
    return round(100 * (line.score or 0.0)) <= 0


def _points(line: Line) -> str:
    return f"{100 * (line.score or 0.0):.0f}"


def level_text(standing: Standing) -> str:
    """What the level is: `16.7 % of the layers' FLOPs saved`."""
    phase = "" if standing.phase == "all" else f" in {standing.phase}"
    return f"{100 * standing.level:.3g} % {AXES.get(standing.axis, standing.axis)}{phase}"


def first_lines(standing: Standing) -> list[Line]:
    """The first lines with a score, and the models and the static control that all lines are compared with."""
    lines = [line for line in standing.lines if line.score is not None]
    # These stay however low they rank, at the cost of other lines.
    needed = [line for line in lines if line.is_reference or line.label == standing.static]
    some = [line for line in lines if line not in needed][: max(0, MOST_LINES - len(needed))]
    return [line for line in lines if line in some or line in needed]


def short(standing: Standing, lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    """Header and texts of the short form of the list, which is shown first."""
    header = ["rank", "method", "score", "vs static", "skipped", "time"]
    elsewhere = any(_misses_level(line) for line in lines)
    body = []
    for line in lines:
        texts = [rank(line), line.label, score(line), over_static(line, standing)]
        texts += [NONE if line.is_reference else whole_percent(one) for one in (line.skipped, line.time)]
        # The measured saving on the axis of the level.
        saved = NONE if line.saved is None else f"{percent(line.saved)} %"
        body.append([*texts, *([saved] if elsewhere else [])])
    return [*header, *(["saved"] if elsewhere else [])], body


def by_task(standing: Standing) -> tuple[list[str], list[list[str]]]:
    """Header and texts of unscaled scores, for a list without a scale."""
    body = [[line.label, *(NONE if row is None else cell(row) for row in line.rows)] for line in standing.lines]
    return ["method", *(task for task, _ in standing.tasks)], body


def long(standing: Standing) -> tuple[list[str], list[list[str]]]:
    """Header and texts of all lines, with everything that is known about them."""
    header = ["rank", "method", "chooses", "score", "vs static", *(task for task, _ in standing.tasks)]
    header += ["saved", "skipped", "net", "projected", "shuffled", "time", "sites"]
    body = []
    for line in standing.lines:
        cells = [NONE if row is None else cell(row) for row in line.rows]
        savings = [line.saved, line.skipped, line.net, line.projected]
        lost = NONE if line.lost is None else f"{-100 * line.lost:+.0f}"
        times = "; ".join(f"{setting}: {whole_percent(one)}" for setting, one in line.times.items())
        body.append(
            [rank(line), line.label, line.chooses or NONE, score(line), over_static(line, standing), *cells]
            + [NONE if one is None else percent(one) for one in savings]
            + [lost, times or NONE, line.eligible or NONE]
        )
    return header, body


COLUMNS = (
    "chooses: whether a method decides for every token, once per prompt, by chance, or never. saved: on the axis of "
    "the level; net: net FLOPs; projected: the same decisions at the larger model's shape; "
    "all in % of the dense model. shuffled: what the score changes by with the decisions of other tokens. time: time "
    "saved beside plain Hugging Face."
)


def notes_of(standing: Standing) -> list[str]:
    """Notes that a reader of the list needs: each is a line under the list, never a mark inside it."""
    notes = [RULE.format(over="documents" if standing.seeds == 1 else "seeds and documents")]
    if standing.static is not None:
        notes.append(f"vs static: difference to {standing.static}; fewer tests than for ranks, so it may tell more.")
    if standing.seeds == 1:
        notes.append("One seed: intervals do not cover another training run.")
    if others := [line.label for line in standing.lines if line.score is not None and _misses_level(line)]:
        notes.append(f"Without a rank, as not within a point of the level on every task: {_some(others)}.")
    rows = [row for line in standing.lines for row in line.rows if row is not None]
    if partial := sorted({row.label for row in rows if row.status == "partial"}):
        notes.append(f"Some seeds are missing of: {_some(partial)}.")
    if inert := sorted({row.label for row in rows if row.status == "inert"}):
        notes.append(f"Without a rank, as the dial moves nothing: {_some(inert)}.")
    targets = {row.target for row in rows if row.target is not None and abs(row.target - row.level) > 0.01}
    if targets:
        told = " or ".join(f"{100 * target:.3g} %" for target in sorted(targets))
        notes.append(f"Trained towards {told} and judged at this level.")
    by_sites: dict[str, list[str]] = {}
    for line in standing.ranked:
        if line.eligible and line.chooses in ("per token", "per prompt"):
            by_sites.setdefault(line.eligible, []).append(line.label)
    # Worth a note only if methods differ: then they did not choose among the same branches.
    if len(by_sites) > 1:
        told = "; ".join(f"{_some(some)}: {sites}" for sites, some in by_sites.items())
        notes.append(f"Tokens may skip at different sites ({told}).")
    if standing.left_out:
        notes.append(f"Left out, as dense is hardly better than a guess or base there: {', '.join(standing.left_out)}.")
    return notes


def _some(names: Sequence[str]) -> str:
    left = len(names) - _MOST_NAMED
    # `and 1 more` is not shorter than most names.
    return ", ".join(names) if left < 2 else f"{', '.join(names[:_MOST_NAMED])} and {left} more"


def _misses_level(line: Line) -> bool:
    return not line.is_reference and line.rank is None and any(row and row.status == "nearest" for row in line.rows)


def rank(line: Line) -> str:
    """`2`, or `1-3` if the tests leave the rank open."""
    if line.rank is None:
        return NONE
    low, high = line.rank
    return str(low) if low == high else f"{low}-{high}"


def score(line: Line) -> str:
    """`78 [70, 86]`."""
    if line.score is None:
        return NONE
    told = _whole(line.score)
    if line.interval is None or line.is_reference:
        return told
    return f"{told} [{_whole(line.interval[0])}, {_whole(line.interval[1])}]"


def over_static(line: Line, standing: Standing) -> str:
    """`+12 [+4, +20]`."""
    if line.label == standing.static:
        return "static"
    found = line.over_static
    if found is None:
        return NONE
    told = f"{100 * found.difference:+.0f}"
    if found.low is None or found.high is None:
        return told
    return f"{told} [{100 * found.low:+.0f}, {100 * found.high:+.0f}]"


def whole_percent(share: float | None) -> str:
    """`17 %`."""
    return NONE if share is None else f"{_whole(share)} %"


def _whole(share: float) -> str:
    # A small loss is 0, not -0.
    return f"{100 * share:.0f}".replace("-0", "0") if abs(share) < 0.005 else f"{100 * share:.0f}"


def cell(row: Row) -> str:
    """Unscaled score of a task with its interval."""
    told = number(row.metric, row.reached())
    if row.low is None or row.high is None:
        return told
    return f"{told} [{number(row.metric, row.low)}, {number(row.metric, row.high)}]"


def number(metric: str, score: float) -> str:
    """A score as text: a share in percent with one decimal; another number with four digits, or all integer digits."""
    if metric_of(metric).unit == "share":
        return f"{100 * score:.1f}"
    # `#` keeps zeros (`1.500`), so that a column's numbers have equally many digits.
    return f"{score:.0f}" if 1000 <= abs(score) < _EXPONENT_FROM else f"{score:#.4g}".rstrip(".")


def percent(share: float) -> str:
    """A share in percent with one decimal; a value that rounds to 0 has no sign."""
    return f"{100 * share:.1f}".replace("-0.0", "0.0") if abs(share) < 0.0005 else f"{100 * share:.1f}"
