"""The command line: `adaptive-bench`. One file per command; nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from adaptive_bench import __version__
from adaptive_bench.cli import (
    check,
    diff,
    doctor,
    entries,
    export,
    export_decisions,
    export_model,
    generate,
    headroom,
    inspect,
    leaderboard,
    listing,
    lm_eval,
    new_method,
    paper,
    rates,
    removing,
    retry,
    run,
    samples,
    show,
    site,
    speculate,
    status,
    steps,
    time,
    tune,
)
from adaptive_bench.cli.config_options import ConfigCommand
from adaptive_bench.cli.default_command import group_with_default
from adaptive_bench.cli.failures import reported
from adaptive_bench.cli.named_run import RunCommand
from adaptive_bench.cli.strict import Command, StrictCommand

app = typer.Typer(
    name="adaptive-bench",
    help="Which adaptive-compute method keeps the most quality at the same saved compute, and is the saving real?",
    epilog="Start with `adaptive-bench run`: minutes on a laptop, no network.",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: dict[str, Callable[..., None]] = {
    "run": run.run,
    "list": listing.list_names,
    "status": status.status,
    "retry": retry.retry,
    "show": show.show,
    "diff": diff.diff,
    "samples": samples.samples,
    "export": export.export,
    "rm": removing.rm,
    "clean": removing.clean,
    "generate": generate.generate,
    "export-model": export_model.export_model,
    "export-decisions": export_decisions.export_decisions,
    "time": time.time,
    "speculate": speculate.speculate,
    "inspect": inspect.inspect,
    "headroom": headroom.headroom,
    "rates": rates.rates,
    "steps": steps.steps,
    "tune": tune.tune,
    "check": check.check,
    "new-method": new_method.new_method,
    "doctor": doctor.doctor,
}
_CLASSES = {
    "run": ConfigCommand,
    "rates": rates.RatesCommand,
    "steps": steps.StepsCommand,
    "tune": tune.TuneCommand,
    **dict.fromkeys(
        (
            *("retry", "show", "diff", "rm", "samples", "export", "generate", "export-model", "export-decisions"),
            *("time", "speculate", "inspect"),
        ),
        RunCommand,
    ),
}
for _name, _command in _COMMANDS.items():
    app.command(_name, cls=_CLASSES.get(_name, Command))(_command)
boards = typer.Typer(cls=group_with_default("show"), help="The leaderboard of runs: print it, build a page, share.")
boards.command("show", cls=RunCommand)(leaderboard.leaderboard)
boards.command("build", cls=RunCommand)(site.build)
boards.command("findings", cls=RunCommand)(site.findings)
boards.command("ranks", cls=RunCommand)(site.ranks)
boards.command("paper", cls=RunCommand)(paper.paper)
boards.command("submit", cls=RunCommand)(entries.submit)
boards.command("unpack", cls=Command)(entries.unpack)
boards.command("verify", cls=Command)(entries.verify)
boards.command("publish", cls=Command)(entries.publish)
app.add_typer(boards, name="leaderboard")
app.command("lm-eval", cls=StrictCommand, context_settings=lm_eval.SETTINGS)(lm_eval.lm_eval)


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


def main() -> None:
    """Entry point of the `adaptive-bench` script."""
    with reported(debug="--debug" in sys.argv):
        app()
