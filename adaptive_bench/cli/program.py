"""Defines the commands of `adaptive-bench`. The file of a command is imported only when it is run, not for `--help`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from adaptive_bench import __version__

_COMPARE, _CHOOSE, _LOOK = "Compare methods", "Choose settings", "Look at results"
_ROOM, _USE, _FIND = "Make room", "Use a trained model", "Find your way, add a method"


@dataclass(frozen=True)
class Source:
    """The place of a command in this package.

    Attributes:
        place: `module:name` of its function, or of a `typer.Typer` with commands of its own.
        panel: Title under which the program's help lists it.
        cls: `module:class` of its command class.
        settings: Settings of click's context.
    """

    place: str
    panel: str
    cls: str = "options:Command"
    settings: Mapping[str, Any] | None = None

    def load(self, called: str) -> Any:
        """Import the place and make the command of this name."""
        found = _named(self.place)
        if not isinstance(found, typer.Typer):
            # Typer makes a plain command, not a group, of an app with a single function.
            alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
            alone.command(called, cls=_named(self.cls), context_settings=dict(self.settings or {}))(found)
            found = alone
        made = typer.main.get_command(found)
        made.name = called
        return made

    def summary(self) -> str:
        """First paragraph of the command's help, read from the source file, because importing all takes too long."""
        module, name = self.place.split(":")
        text = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
        if name == "app":
            # Every group's file has one; a test reads the help of all commands.
            return re.search(r'^app = .*?help="(.*?)"', text, re.MULTILINE | re.DOTALL)[1]  # type: ignore[index]
        # From the function's `def` over its options to the end of the docstring's first paragraph.
        of_function = re.search(rf'^def {name}\(.*?"""(.*?)(?:\n\n|""")', text, re.MULTILINE | re.DOTALL)
        return " ".join(of_function[1].split()) if of_function else ""


def _named(place: str) -> Any:
    module, name = place.split(":")
    return getattr(import_module(f"adaptive_bench.cli.{module}"), name)


# Every option goes to lm-eval, `--help` too.
_LM_EVAL = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
COMMANDS = {
    "run": Source("run:run", _COMPARE),
    "retry": Source("run:retry", _COMPARE),
    "time": Source("speed:time", _COMPARE),
    "speculate": Source("speed:speculate", _COMPARE),
    "headroom": Source("headroom:headroom", _COMPARE),
    "tune": Source("tune:tune", _CHOOSE),
    "status": Source("runs:status", _LOOK),
    "show": Source("runs:show", _LOOK),
    "samples": Source("runs:samples", _LOOK),
    "inspect": Source("inspect:inspect", _LOOK),
    "export": Source("runs:export", _LOOK),
    "leaderboard": Source("leaderboard:app", _LOOK),
    "rm": Source("runs:rm", _ROOM),
    "clean": Source("runs:clean", _ROOM),
    "generate": Source("models:generate", _USE),
    "export-model": Source("models:export_model", _USE),
    "lm-eval": Source("models:lm_eval", _USE, "options:StrictCommand", _LM_EVAL),
    "list": Source("listing:list_names", _FIND),
    "doctor": Source("check:doctor", _FIND),
    "check": Source("check:check", _FIND),
    "new-method": Source("check:new_method", _FIND),
}


@cache
def _command(name: str) -> Any:
    return COMMANDS[name].load(name)


class _LazyGroup(TyperGroup):
    """A group of commands that imports each command when it is asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment] # `get_command` gives them
        self._writes_help = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._writes_help and cmd_name in COMMANDS:
            # The help lists commands by stand-ins with their summaries alone, without importing any.
            source = COMMANDS[cmd_name]
            return TyperCommand(cmd_name, help=source.summary(), rich_help_panel=source.panel)
        return _command(cmd_name) if cmd_name in COMMANDS else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._writes_help = True
        super().format_help(ctx, formatter)
        self._writes_help = False


app = typer.Typer(
    name="adaptive-bench",
    cls=_LazyGroup,
    help="Which adaptive-compute method keeps the most quality at the same saved compute, and is the saving real?",
    epilog="Start with `adaptive-bench run`: minutes on a laptop, no network. With `--debug` any command shows library "
    "messages, and the traceback of an error.",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"adaptive-bench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...
