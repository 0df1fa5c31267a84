"""Option values with a small grammar of their own."""

from __future__ import annotations

from adaptive_bench.errors import UsageError


def counts_value(text: str, option: str) -> tuple[int, ...]:
    """`1,8,32` becomes numbers, each once.

    Raises:
        UsageError: A part is not a whole number.
    """
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",") if part.strip()))
    except ValueError:
        raise UsageError(f"{option} takes whole numbers such as 1,8,32, got {text!r}.") from None


def shares_value(text: str, option: str) -> tuple[float, ...]:
    """`0,0.25,0.5` becomes shares, each once, rising.

    Raises:
        UsageError: A part is not a number.
    """
    try:
        return tuple(sorted({float(part) for part in text.split(",") if part.strip()}))
    except ValueError:
        raise UsageError(f"{option} takes shares such as 0,0.25,0.5 (0.25 is 25 %), got {text!r}.") from None
