"""Options that would do nothing beside others: who gives one expects it to count, so it is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adaptive_bench.errors import UsageError

_GIVEN = "adaptive_bench.given"


def note_given(ctx: Any, names: Iterable[str]) -> None:
    """Keep which options stand on the command line: of a value that is the default nothing else tells it."""
    ctx.meta[_GIVEN] = frozenset(names)


def refuse_idle(ctx: Any, where: str, *options: str, instead: str = "") -> None:
    """Refuse options that do nothing where the command is.

    Args:
        where: Ends the sentence `OPTION does nothing ...`.
        instead: What would make it count, behind `Leave it out`.

    Raises:
        UsageError: One of them was given.
    """
    given = [option for option in options if option in ctx.meta[_GIVEN]]
    if given:
        raise UsageError(
            f"{', '.join(given)} {'does' if len(given) == 1 else 'do'} nothing {where}. "
            f"Leave {'it' if len(given) == 1 else 'them'} out{instead}."
        )
