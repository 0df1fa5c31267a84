"""Numbers as they are shown: one form for each kind, wherever it stands."""

from __future__ import annotations

from adaptive_bench.metric import metric_of

_LONGEST = 1e7  # a number below is written out


def number(metric: str, score: float) -> str:
    """A score as it is shown: shares in percent with one decimal, other numbers with four digits or all before the
    point.
    """
    if metric_of(metric).unit == "share":
        return f"{100 * score:.1f}"
    return f"{score:.0f}" if 1000 <= abs(score) < _LONGEST else f"{score:#.4g}".rstrip(".")


def percent(share: float) -> str:
    """A share in percent with one decimal; what rounds to nothing has no sign."""
    return f"{100 * share:.1f}".replace("-0.0", "0.0") if abs(share) < 0.0005 else f"{100 * share:.1f}"
