"""The sentences above a list: which method keeps most, whether it beats leaving out layers, whether its saving is real.

Every claim is tested by a condition here and is left out if it does not hold.
"""

from __future__ import annotations

from .standing import Line, Standing

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
    keeps = f"{best.label} {'keeps most' if len(ranked) > 1 else 'alone meets this saving'} ({_points(best)} of 100)"
    # The best row does not choose tokens: a claim about methods is made only if some were ranked.
    if best.chooses in ("never", "by chance"):
        others = [line for line in ranked if line.chooses not in ("never", "by chance")]
        settled = all(line.over_static is not None and line.over_static.apart for line in others)
        beats = "beats it" if not best.is_static else f"{'beats' if settled else 'is shown to beat'} leaving out layers"
        return f"{at}, {keeps}" + (f": nothing that chooses tokens {beats}." if others else ".")
    static = next((line for line in ranked if line.label == standing.static), None)
    level = f", level with {tied} other{'s' if tied > 1 else ''}" if tied else ""
    if static is None:
        return f"{at}, {keeps}{level}; leaving out layers {_elsewhere(standing)}."
    if best.over_static is not None and best.over_static.apart and best.over_static.difference > 0:
        return f"{at}, {keeps}{level}, and beats leaving out layers ({_points(static)})."
    return f"{at}, {keeps}{level}, not certainly more than leaving out layers ({_points(static)})."


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
