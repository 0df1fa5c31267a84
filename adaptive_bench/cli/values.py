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
