"""Marks behind a score: what a reader must know of it before it is compared."""

from __future__ import annotations

from .row import Row

# Status of a row -> the mark behind its score, and what it means.
PARTIAL = "*"
_MARKS = {
    "partial": (PARTIAL, "not every seed that was asked for reached this level"),
    "inert": ("†", "the dial of this method moves nothing"),
}
_BEYOND = ("‡", "beyond the saving this method was trained for")
_BELOW = ("§", "less than half of the saving this method was trained for")
_OTHER_AXIS = ("¶", "trained for a saving on another axis")
_OTHER_LAYERS = ("◊", "not trained for the number of layers that is left out here")
# Axes without trainings of their own.
_TRAINED_ON = {"time": "net", "bytes": "net", "projected": "net", "claimed": "tokens"}
_NEAR = 0.02 + 1e-6  # of a level: savings are measured up to rounding
FAR = "≈"
_INTERPOLATED = (FAR, "interpolated: measured more than 2 points of saving away, on one side or both")
_CLAIM_TOLERANCE = 0.05
_SAME_LAYERS = 0.005  # of all layers: what is read off so close to a number of them is read at that number
_CLAIMED = ("⚠", "the dial claims a saving that differs from what was executed by more than 5 points")
ALL_MARKS = (
    *_MARKS.values(),
    _BEYOND,
    _BELOW,
    _OTHER_AXIS,
    _OTHER_LAYERS,
    _INTERPOLATED,
    _CLAIMED,
    ("n/a", "outside the savings that were measured"),
)


def marks(row: Row) -> list[tuple[str, str]]:
    """Marks behind a score, with what they mean."""
    found = [_MARKS[row.status]] if row.status in _MARKS else []
    found += target_marks(row)
    if is_far(row):
        found.append(_INTERPOLATED)
    if abs(row.claimed_minus_executed or 0.0) > _CLAIM_TOLERANCE:
        found.append(_CLAIMED)
    return found


def target_marks(row: Row) -> list[tuple[str, str]]:
    """Those of them that say what the method was trained for."""
    found = []
    if row.beyond_target:
        found.append(_BEYOND)
    if row.below_target:
        found.append(_BELOW)
    if row.target_axis not in (None, _TRAINED_ON.get(row.axis, row.axis)):
        found.append(_OTHER_AXIS)
    if other_layers(row.trained_without, row.saved_tokens):
        found.append(_OTHER_LAYERS)
    return found


def marks_at_point(row: Row, left_out: float | None) -> list[tuple[str, str]]:
    """As `target_marks`, where a method was measured instead of at a level.

    Args:
        row: Of the nearest level.
        left_out: Share of the token-branches that are skipped there, known of the point itself.
    """
    if row.trained_without is None:
        return target_marks(row)
    return [_OTHER_LAYERS] if other_layers(row.trained_without, left_out) else []


def other_layers(trained_without: float | None, left_out: float | None) -> bool:
    """Whether a method that leaves out whole layers was trained for another share of them than it is read at."""
    if trained_without is None or left_out is None:
        return False
    return abs(trained_without - left_out) > _SAME_LAYERS


def is_far(row: Row) -> bool:
    """Whether the savings that the score was read off lie more than 2 points from the level, on one side or both.

    Rows of earlier versions know only how far the two are apart: one of them is at least half of that away.
    """
    return is_far_off((row.gap or 0.0) / 2 if row.distance is None else row.distance)


def is_far_off(distance: float) -> bool:
    """Whether a saving is too far from what was measured to go without a mark."""
    return distance > _NEAR
