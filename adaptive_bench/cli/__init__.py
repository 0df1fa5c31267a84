"""The command line: `adaptive-bench`. One file per command; nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys

import typer

from adaptive_bench.cli import check, doctor, leaderboard, listing, new_method, rates, run, site, time
from adaptive_bench.cli.default_command import group_with_default
from adaptive_bench.cli.failures import reported

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
app.command("run")(run.run)
app.command("list")(listing.list_names)
boards = typer.Typer(cls=group_with_default("show"), help="Print the leaderboard of runs, or build a page from them.")
boards.command("show")(leaderboard.leaderboard)
boards.command("build")(site.build)
app.add_typer(boards, name="leaderboard")
app.command("time")(time.time)
app.command("rates")(rates.rates)
app.command("check")(check.check)
app.command("new-method")(new_method.new_method)
app.command("doctor")(doctor.doctor)


def main() -> None:
    """Entry point of the `adaptive-bench` script."""
    with reported(debug="--debug" in sys.argv):
        app()
