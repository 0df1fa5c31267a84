"""The commands of `adaptive-bench`. One file per command; nothing heavy is imported before a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from adaptive_bench import __version__
from adaptive_bench.cli.lazy_commands import Source, lazy_group

_COMPARE, _CHOOSE, _LOOK = "Compare methods", "Choose settings", "Look at results"
_ROOM, _USE, _FIND = "Make room", "Use a trained model", "Find your way, add a method"
_LM_EVAL = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
# With the first paragraph of each one's docstring, which the tests compare: reading 30 files for it takes too long.
COMMANDS = {
    # Compare methods
    "run": Source("run", "run", "Compare methods at the same saved compute.", _COMPARE, "config_options:ConfigCommand"),
    "retry": Source(
        "retry",
        "retry",
        "Do what failed or was never finished in a run; what is done stays, and nothing else is computed.",
        _COMPARE,
        "named_run:RunCommand",
    ),
    "time": Source(
        "time",
        "time",
        "Measure how much of a method's saving is felt as time.",
        _COMPARE,
        "named_run:OwnOutCommand",
    ),
    "speculate": Source(
        "speculate",
        "speculate",
        "Draft with the dial turned, verify with the full model: acceptance, speed and cost beside greedy decoding.",
        _COMPARE,
        "named_run:OwnOutCommand",
    ),
    "headroom": Source(
        "headroom",
        "headroom",
        "Measure what adaptive methods could save at most: which sites matter, oracles, best static sets of layers.",
        _COMPARE,
    ),
    # Choose settings
    "tune": Source(
        "tune",
        "tune",
        "Look for the best parameters of methods, with equal trials, on validation documents.",
        _CHOOSE,
        "tune:TuneCommand",
    ),
    # Look at results
    "status": Source(
        "status",
        "status",
        "Show what runs, what stopped, what failed and why, and what is damaged or missing.",
        _LOOK,
    ),
    "show": Source(
        "show",
        "show",
        "Show configuration, command, environment, and how the training went.",
        _LOOK,
        "named_run:RunCommand",
    ),
    "diff": Source(
        "diff",
        "diff",
        "Compare two runs: their configurations, and where both measured a method at the same saving, its scores.",
        _LOOK,
        "named_run:RunCommand",
    ),
    "samples": Source(
        "samples",
        "samples",
        "Show prompts, right answers, and what each method wrote, side by side, of the run's first seed.",
        _LOOK,
        "named_run:RunCommand",
    ),
    "inspect": Source(
        "inspect",
        "inspect",
        "Look inside: what methods skip of a text, token by token and layer by layer, at several dial values.",
        _LOOK,
        "named_run:RunCommand",
    ),
    "export": Source(
        "export",
        "export",
        "Write one row for each method, task, metric, axis, phase and level: what `load_results()` gives in Python.",
        _LOOK,
        "named_run:RunCommand",
    ),
    "leaderboard": Source("boards", "app", "The leaderboard of runs: print it, build a page, share.", _LOOK),
    # Make room
    "rm": Source(
        "removing",
        "rm",
        "Delete a run: its folder, and its records that nothing else refers to. One that is under way is refused.",
        _ROOM,
        "named_run:RunCommand",
    ),
    "clean": Source(
        "removing",
        "clean",
        "Delete records that no run refers to.",
        _ROOM,
    ),
    # Use a trained model
    "generate": Source(
        "generate",
        "generate",
        "Continue prompts with a trained model; what was saved is said on the last line, on stderr.",
        _USE,
        "named_run:RunCommand",
    ),
    "export-model": Source(
        "export_model",
        "export_model",
        "Copy a method's model of the first seed, with calibrations, tokenizer and a model card, ready to be uploaded.",
        _USE,
        "named_run:RunCommand",
    ),
    "lm-eval": Source(
        "lm_eval",
        "lm_eval",
        "lm-eval's command line with the model `adaptive` and the tasks of `list tasks`.",
        _USE,
        "strict:StrictCommand",
        _LM_EVAL,
    ),
    # Find your way, add a method
    "list": Source(
        "listing",
        "list_names",
        "List methods, tasks, models, families, configs, runs or keys of a config, or say all of one.",
        _FIND,
    ),
    "doctor": Source(
        "doctor", "doctor", "Check versions, devices, network, data, caches and the output folder.", _FIND
    ),
    "check": Source("check", "check", "Check that methods do what every method has to do.", _FIND),
    "new-method": Source(
        "new_method", "new_method", "Write a package with a working method, its entry point and its test.", _FIND
    ),
}
_GONE = {"rates": "adaptive-bench tune --preset rates", "steps": "adaptive-bench tune --preset steps"}
app = typer.Typer(
    name="adaptive-bench",
    cls=lazy_group(COMMANDS, _GONE),
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
