"""Formats numbers: one form for each kind, wherever it is shown."""

from __future__ import annotations

from adaptive_bench.metric import metric_of

_LONGEST = 1e7  # numbers from here on are written with an exponent


def number(metric: str, score: float) -> str:
    """A score as text: a share in percent with one decimal; another number with four digits, or all integer digits."""
    if metric_of(metric).unit == "share":
        return f"{100 * score:.1f}"
    return f"{score:.0f}" if 1000 <= abs(score) < _LONGEST else f"{score:#.4g}".rstrip(".")


def percent(share: float) -> str:
    """A share in percent with one decimal; a value that rounds to 0 has no sign."""
    return f"{100 * share:.1f}".replace("-0.0", "0.0") if abs(share) < 0.0005 else f"{100 * share:.1f}"
