"""Option values with a small grammar of their own."""

from __future__ import annotations

from adaptive_bench.errors import UsageError


def seeds_value(text: str | None) -> int | list[int] | None:
    """`3` stays a number (seeds 1 to 3), `1,2,5` becomes a list.

    Raises:
        UsageError: Neither of the two.
    """
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",") if part.strip()] if "," in text else int(text)
    except ValueError:
        raise UsageError(
            f"--seeds takes a number n for the seeds 1 to n, or a list such as 1,2,5, got {text!r}."
        ) from None


def levels_value(text: str | None) -> list[float] | None:
    """`0,0.05,0.1` becomes a list of shares.

    Raises:
        UsageError: A part is not a number.
    """
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(
            f"--levels takes saved shares from 0 up to but not 1, such as 0,0.05,0.1 (0.05 is 5 %), got {text!r}."
        ) from None


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
