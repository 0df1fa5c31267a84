"""The command line: `adaptive-bench`. One file per command; nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys

import typer

from adaptive_bench.cli.doctor import doctor
from adaptive_bench.cli.failures import reported
from adaptive_bench.cli.leaderboard import leaderboard
from adaptive_bench.cli.listing import list_names
from adaptive_bench.cli.run import run

app = typer.Typer(
    name="adaptive-bench",
    help="Which adaptive-compute method keeps the most quality at the same saved compute, and is the saving real?",
    epilog="Start with `adaptive-bench run`: minutes on a laptop, no network.",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run)
app.command("list")(list_names)
app.command("leaderboard")(leaderboard)
app.command("doctor")(doctor)


def main() -> None:
    """Entry point of the `adaptive-bench` script."""
    with reported(debug="--debug" in sys.argv):
        app()
