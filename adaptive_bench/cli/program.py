"""The commands of `adaptive-bench`. A file per group of them, imported when one is run: `--help` needs none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from adaptive_bench import __version__
from adaptive_bench.errors import UsageError

_COMPARE, _CHOOSE, _LOOK = "Compare methods", "Choose settings", "Look at results"
_ROOM, _USE, _FIND = "Make room", "Use a trained model", "Find your way, add a method"


@dataclass(frozen=True)
class Source:
    """Where a command is.

    Attributes:
        place: `module:name` of its function, or of a `typer.Typer` with commands of its own, in this package.
        panel: Title that it stands below in the help of the program.
        summary: The first paragraph of its help, which a test compares: to import all for it takes too long.
        cls: `module:class`, where it is no plain command.
        settings: Of click's context.
    """

    place: str
    panel: str
    summary: str
    cls: str = "options:Command"
    settings: Mapping[str, Any] | None = None

    def load(self, called: str) -> Any:
        """Import it and make the command of it."""
        found = _named(self.place)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
            alone.command(called, cls=_named(self.cls), context_settings=dict(self.settings or {}))(found)
            found = alone
        made = typer.main.get_command(found)
        made.name = called
        return made


def _named(place: str) -> Any:
    module, name = place.split(":")
    return getattr(import_module(f"adaptive_bench.cli.{module}"), name)


COMMANDS = {
    "run": Source("run:run", _COMPARE, "Compare methods at the same saved compute.", "config_options:ConfigCommand"),
    "retry": Source(
        "run:retry",
        _COMPARE,
        "Do what failed or was never finished in a run; what is done stays, and nothing else is computed.",
    ),
    "time": Source("time:time", _COMPARE, "Measure how much of a method's saving is felt as time."),
    "speculate": Source(
        "speculate:speculate",
        _COMPARE,
        "Draft with the dial turned, verify with the full model: acceptance, speed and cost beside greedy decoding.",
    ),
    "headroom": Source(
        "headroom:headroom",
        _COMPARE,
        "Measure what adaptive methods could save at most: which sites matter, oracles, best static sets of layers.",
    ),
    "tune": Source(
        "tune:tune",
        _CHOOSE,
        "Look for the best parameters of methods, with equal trials, on validation documents.",
        "tune:TuneCommand",
    ),
    "status": Source(
        "runs:status", _LOOK, "Show what runs, what stopped, what failed and why, and what is damaged or missing."
    ),
    "show": Source("show:show", _LOOK, "Show configuration, command, environment, and how the training went."),
    "diff": Source(
        "samples:diff",
        _LOOK,
        "Compare two runs: their configurations, and where both measured a method at the same saving, its scores.",
    ),
    "samples": Source(
        "samples:samples",
        _LOOK,
        "Show prompts, right answers, and what each method wrote, side by side, of the run's first seed.",
    ),
    "inspect": Source(
        "inspect:inspect",
        _LOOK,
        "Look inside: what methods skip of a text, token by token and layer by layer, at several dial values.",
    ),
    "export": Source(
        "runs:export",
        _LOOK,
        "Write one row for each method, task, metric, axis, phase and level: what `load_results()` gives in Python.",
    ),
    "leaderboard": Source("leaderboard:app", _LOOK, "The leaderboard of runs: print it, build a page, share."),
    "rm": Source(
        "runs:rm",
        _ROOM,
        "Delete a run: its folder, and its records that nothing else refers to. One that is under way is refused.",
    ),
    "clean": Source("runs:clean", _ROOM, "Delete records that no run refers to."),
    "generate": Source(
        "generate:generate",
        _USE,
        "Continue prompts with a trained model; what was saved is said on the last line, on stderr.",
    ),
    "export-model": Source(
        "generate:export_model",
        _USE,
        "Copy a method's model of the first seed, with calibrations, tokenizer and a model card, ready to be uploaded.",
    ),
    "lm-eval": Source(
        "lm_eval:lm_eval",
        _USE,
        "lm-eval's command line with the model `adaptive` and the tasks of `list tasks`.",
        "options:StrictCommand",
        {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    ),
    "list": Source(
        "listing:list_names",
        _FIND,
        "List methods, tasks, models, families, configs, runs or keys of a config, or say all of one.",
    ),
    "doctor": Source("check:doctor", _FIND, "Check versions, devices, network, data, caches and the output folder."),
    "check": Source("check:check", _FIND, "Check that methods do what every method has to do."),
    "new-method": Source(
        "check:new_method", _FIND, "Write a package with a working method, its entry point and its test."
    ),
}
# Names of earlier versions, with what to type instead.
_GONE = {"rates": "adaptive-bench tune --preset rates", "steps": "adaptive-bench tune --preset steps"}


@cache
def _command(name: str) -> Any:
    return COMMANDS[name].load(name)


class _LazyGroup(TyperGroup):
    """Imports a command when somebody asks for it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment] # `get_command` gives them
        self._writes_help = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _GONE:
            raise UsageError(f"There is no command {cmd_name!r} any more. Use `{_GONE[cmd_name]}`.")
        if self._writes_help and cmd_name in COMMANDS:
            source = COMMANDS[cmd_name]
            return TyperCommand(cmd_name, help=source.summary, rich_help_panel=source.panel)
        return _command(cmd_name) if cmd_name in COMMANDS else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._writes_help = True
        super().format_help(ctx, formatter)
        self._writes_help = False


app = typer.Typer(
    name="adaptive-bench",
    cls=_LazyGroup,
    help="Which adaptive-compute method keeps the most quality at the same saved compute, and is the saving real?",
    epilog="Start with `adaptive-bench run`: minutes on a laptop, no network.",
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
