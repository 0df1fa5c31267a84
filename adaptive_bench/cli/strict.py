"""What every command does: it refuses an empty value, one that nobody can have meant, and an option twice of which only
one value would count; and it keeps the libraries below quiet unless `--debug` is given.
"""

from __future__ import annotations

import errno
import inspect
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

import typer
from typer.core import TyperCommand

from adaptive_bench.cli.quiet import quiet
from adaptive_bench.errors import UsageError, is_printable, one_line
from adaptive_bench.validation import LARGEST_COUNT, without_prefix

_SHARES = ("--level", "--saving")  # savings: of these no command can mean percent, or less than nothing
_LOOKS_LIKE_TEXT = re.compile(r"-[\d.\s(]")  # and like no option: `-5 + 3`
# What takes several values with commas between them, where it takes a text: `headroom --batch` is a number.
_LISTS = {
    "--batch",
    "--cell",
    "--grid",
    "--levels",
    "--methods",
    "--savings",
    "--seeds",
    "--steps",
    "--tasks",
    "--track",
}
_LISTS |= {"--train-on"}

# `main` reads it from the arguments before Typer parses them. A function that wants to know has a parameter `debug`.
Debug = Annotated[bool, typer.Option("--debug", help="Show library messages, and the traceback of an error.")]


class StrictCommand(TyperCommand):
    """A command that takes each value once, and none that is empty or nobody can have meant."""

    def parsing(self, given: Mapping[str, Any]) -> AbstractContextManager[None]:
        """What surrounds the reading of values, for commands where one value says how another is read.

        Args:
            given: The values as they were written, by name of the option.
        """
        return nullcontext()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click; the first look only counts."""
        if not ctx.resilient_parsing:
            _refuse_bytes(args)
            with _shown_with_usage(ctx):
                values, rest, order = self.make_parser(ctx).parse_args(args=list(args))
            self._refuse_spread_list(ctx, order, rest)
            _refuse_repeated(order)
            _refuse_empty(order, values)
            if not all(part.strip() for part in rest):  # of a command that hands its arguments on
                raise UsageError(f"{ctx.info_name} takes no empty values, got one. Give a value or leave it out.")
            try:
                with self.parsing(values):
                    rest = super().parse_args(ctx, args)
            except typer.BadParameter as error:
                _add_received(error, values)
                raise
            for param in self.get_params(ctx):
                _refuse_odd(param, ctx.params.get(param.name), self.largest(param))
            return rest
        return super().parse_args(ctx, args)

    def _refuse_spread_list(self, ctx: Any, order: Iterable[Any], rest: Sequence[str]) -> None:
        """Refuse what follows a list where its next value was meant: `--tasks nano_math nano_qa`."""
        takes_arguments = any(param.param_type_name == "argument" for param in self.get_params(ctx))
        lists = [name for name in map(_name, order) if name in _LISTS]
        if rest and lists and not takes_arguments and not ctx.allow_extra_args:
            raise UsageError(
                f"{ctx.info_name} takes options alone, got {one_line(rest[0], 60)!r} behind them. Values of a list "
                f"have commas and no spaces between them: {lists[-1]} FIRST,{one_line(rest[0], 60)}."
            )

    def largest(self, param: Any) -> int:
        """The largest whole number that an option takes; one that says none of its own takes what can be counted."""
        return getattr(param, "max", None) or LARGEST_COUNT


@contextmanager
def _shown_with_usage(ctx: Any) -> Iterator[None]:
    """Within the block an error of the parser is told what command it is about, which is shown above it."""
    try:
        yield
    except typer.TyperException as error:
        if getattr(error, "ctx", ctx) is None:
            error.ctx = ctx  # type: ignore[attr-defined]
        if _LOOKS_LIKE_TEXT.match(getattr(error, "option_name", "")):
            error.message += '. An argument that begins with a hyphen stands behind --: `-- "-5 + 3"`.'
        raise


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
    texts = {_name(param) for param in order if _is_text(param)}
    for name, times in given.items():
        if times > 1:
            commas = f"; a list has commas: {name} a,b" if name in _LISTS & texts else ""
            raise UsageError(f"{name} takes one value, got it {times} times. Give it once{commas}.")


def _is_text(param: Any) -> bool:
    """Whether the command gets a value as it was written."""
    annotation = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    return annotation is str or str in get_args(annotation)


def _refuse_bytes(args: Iterable[str]) -> None:
    """Refuse arguments that are no text: Python hands their bytes on as characters that nobody can write."""
    for arg in args:
        try:
            arg.encode()
        except UnicodeEncodeError as error:
            received = ascii(arg.encode("utf-8", "surrogateescape"))[:100]
            raise UsageError(
                f"Arguments are text in UTF-8, got {received}. Type it anew, or rename the file it is the name of."
            ) from error


def _refuse_empty(order: list[Any], values: dict[str, Any]) -> None:
    for param in order:
        value = values.get(param.name)
        parts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(part, str) and not part.strip() for part in parts):
            raise UsageError(f"{_name(param)} needs a value, got an empty one. Give a value or leave it out.")


def _add_received(error: Any, values: Mapping[str, Any]) -> None:
    """Typer says the rule that a value breaks, but not always the value; and pydantic that it is one."""
    error.message = without_prefix(error.message)
    given = values.get(error.param.name) if error.param is not None else None
    received = one_line(" ".join(map(str, given)) if isinstance(given, list | tuple) else str(given), 60)
    if given is not None and repr(received) not in error.message:
        error.message = f"{error.message.rstrip('.')}, got {received!r}."


def _refuse_odd(param: Any, value: Any, largest: int) -> None:
    """Refuse numbers that nobody can have meant or a float cannot hold, and paths that a terminal cannot show or that
    lead nowhere.
    """
    for part in value if isinstance(value, list | tuple) else (value,):
        if isinstance(part, float) and not math.isfinite(part):
            raise UsageError(f"{_name(param)} takes a finite number, got {part}. Give another one.")
        if isinstance(part, float) and _name(param) in _SHARES and not 0 <= part <= 1:
            raise UsageError(f"{_name(param)} takes a share from 0 to 1, where 0.15 is 15 %, got {part:g}.")
        if isinstance(part, int) and abs(part) > largest:
            raise UsageError(f"{_name(param)} takes whole numbers up to {largest}, got {one_line(str(part), 60)}.")
        if isinstance(part, Path) and not is_printable(str(part)):
            raise UsageError(
                f"{_name(param)} takes a path without control characters, got {ascii(str(part))[:200]}. Choose another."
            )
        if isinstance(part, Path):
            refuse_circle(_name(param), part)


def refuse_circle(name: str, path: Path) -> None:
    """Refuse a path that nothing can be at.

    Raises:
        UsageError: Its links lead in a circle.
    """
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UsageError(
                f"{name} takes a path that leads somewhere, but the links of {str(path)!r} lead in a circle. Remove "
                f"them, or choose another."
            ) from error


def _name(param: Any) -> str:
    return max(param.opts, key=len) if param.param_type_name == "option" else param.name.upper()
