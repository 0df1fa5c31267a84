"""Numbers as they are shown: one form for each kind, wherever it stands."""

from __future__ import annotations

from adaptive_bench.metric import metric_of

from .row import Row

_LONGEST = 1e7  # a number below is written out


def rank(row: Row) -> str:
    """The ranks that tests leave open, `1–3`, or one alone; empty where nothing was tested."""
    if row.rank_low is None or row.rank_high is None:
        return ""
    return str(row.rank_low) if row.rank_low == row.rank_high else f"{row.rank_low}–{row.rank_high}"


def number(metric: str, score: float) -> str:
    """A score as it is shown: shares in percent with one decimal, other numbers with four digits or all before the
    point.
    """
    if metric_of(metric).unit == "share":
        return f"{100 * score:.1f}"
    return f"{score:.0f}" if 1000 <= abs(score) < _LONGEST else f"{score:#.4g}".rstrip(".")


def amount(value: float) -> str:
    """A cost with three digits and an SI prefix: `1.24 G`."""
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:#.3g}".rstrip(".") + f" {prefix}"
    return f"{value:#.3g}".rstrip(".")


def percent(share: float) -> str:
    """A share in percent with one decimal; what rounds to nothing has no sign."""
    return f"{100 * share:.1f}".replace("-0.0", "0.0") if abs(share) < 0.0005 else f"{100 * share:.1f}"
