"""What every command does: it refuses an empty value and an option twice of which only one value would count; and it
keeps the libraries below quiet unless `--debug` is given.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from adaptive_bench.cli.quiet import quiet
from adaptive_bench.errors import UsageError

# `main` reads it from the arguments before Typer parses them. A function that wants to know has a parameter `debug`.
Debug = Annotated[bool, typer.Option("--debug", help="Show library messages, and the traceback of an error.")]


class StrictCommand(TyperCommand):
    """A command that takes each value once, and none that is empty."""

    def parsing(self, given: Mapping[str, Any]) -> AbstractContextManager[None]:
        """What surrounds the reading of values, for commands where one value says how another is read.

        Args:
            given: The values as they were written, by name of the option.
        """
        return nullcontext()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click; the first look only counts."""
        if not ctx.resilient_parsing:
            values, _, order = self.make_parser(ctx).parse_args(args=list(args))
            _refuse_repeated(order)
            _refuse_empty(order, values)
            try:
                with self.parsing(values):
                    return super().parse_args(ctx, args)
            except typer.BadParameter as error:
                given = None if error.param is None else values.get(error.param.name)
                if given is not None and str(given) not in error.message:  # pydantic says the rule alone
                    error.message = f"{error.message.rstrip('.')}, got {given!r}."
                raise
        return super().parse_args(ctx, args)


def keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """A parameter of a function from which Typer makes an option."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


class Command(StrictCommand):
    """A command with options that its function need not have a parameter for.

    Attributes:
        added: The parameters of a function from which they are made.
    """

    added: ClassVar[tuple[Any, ...]] = (keyword("debug", Debug, False),)

    @cached_property
    def _added(self) -> list[Any]:
        there = {param.name for param in self.params}
        return [option for option in options_of(self.added) if option.name not in there]

    def get_params(self, ctx: Any) -> list[Any]:
        """See click; `--help` stays the last one."""
        own = super().get_params(ctx)
        return [*own[:-1], *self._added, own[-1]]

    def invoke(self, ctx: Any) -> Any:
        """See click."""
        if not ctx.params["debug"]:
            quiet()
        for option in self._added:
            del ctx.params[option.name]
        return super().invoke(ctx)


def options_of(parameters: Iterable[inspect.Parameter]) -> list[Any]:
    """Options of click; Typer's public way to them is a command made of a signature."""

    def takes_them() -> None: ...

    takes_them.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(takes_them)
    return list(typer.main.get_command(app).params)


def _refuse_repeated(order: list[Any]) -> None:
    several = [getattr(param, "multiple", False) or param.nargs != 1 for param in order]
    flags = [getattr(param, "is_flag", False) or getattr(param, "count", False) for param in order]
    given = Counter(_name(param) for param, *free in zip(order, several, flags, strict=True) if not any(free))
    for name, times in given.items():
        if times > 1:
            raise UsageError(f"{name} takes one value, got it {times} times. Give it once; a list has commas: a,b.")


def _refuse_empty(order: list[Any], values: dict[str, Any]) -> None:
    for param in order:
        value = values.get(param.name)
        parts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(part, str) and not part.strip() for part in parts):
            raise UsageError(f"{_name(param)} needs a value, got an empty one. Give a value or leave it out.")


def _name(param: Any) -> str:
    return max(param.opts, key=len) if param.param_type_name == "option" else param.name.upper()
