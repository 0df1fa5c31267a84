"""What every command refuses: an empty value, and an option twice of which only one value would count."""

from __future__ import annotations

from collections import Counter
from typing import Any

from typer.core import TyperCommand

from adaptive_bench.errors import UsageError


class StrictCommand(TyperCommand):
    """A command that takes each value once and none that is empty."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click; the first look only counts."""
        if not ctx.resilient_parsing:
            values, rest, order = self.make_parser(ctx).parse_args(args=list(args))
            _refuse_repeated(order)
            _refuse_empty(order, values)
            if not all(part.strip() for part in rest):  # of a command that hands its arguments on
                raise UsageError(f"{ctx.info_name} takes no empty values, got one. Give a value or leave it out.")
        return super().parse_args(ctx, args)


def _refuse_repeated(order: list[Any]) -> None:
    given = Counter(_name(param) for param in order if not (_is_flag(param) or _takes_several(param)))
    for name, times in given.items():
        if times > 1:
            raise UsageError(
                f"{name} takes one value, got it {times} times. Give it once; a list has commas: {name} a,b."
            )


def _refuse_empty(order: list[Any], values: dict[str, Any]) -> None:
    for param in order:
        value = values.get(param.name)
        parts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(part, str) and not part.strip() for part in parts):
            raise UsageError(f"{_name(param)} needs a value, got an empty one. Give a value or leave it out.")


def _name(param: Any) -> str:
    return max(param.opts, key=len) if param.param_type_name == "option" else param.name.upper()


def _is_flag(param: Any) -> bool:
    return bool(getattr(param, "is_flag", False) or getattr(param, "count", False))


def _takes_several(param: Any) -> bool:
    return bool(getattr(param, "multiple", False)) or param.nargs != 1
