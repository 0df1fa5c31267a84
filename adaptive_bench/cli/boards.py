"""`adaptive-bench leaderboard`: its commands, of which `show` need not be named."""

from __future__ import annotations

import typer

from adaptive_bench.cli import entries, leaderboard, paper, site
from adaptive_bench.cli.default_command import group_with_default
from adaptive_bench.cli.named_run import OwnOutCommand, RunCommand
from adaptive_bench.cli.strict import Command

app = typer.Typer(
    cls=group_with_default("show"),
    help="The leaderboard of runs: print it, build a page, share.",
    rich_markup_mode="markdown",
    add_completion=False,
)
app.command("show", cls=RunCommand)(leaderboard.leaderboard)
app.command("build", cls=OwnOutCommand)(site.build)
app.command("findings", cls=OwnOutCommand)(site.findings)
app.command("ranks", cls=OwnOutCommand)(site.ranks)
app.command("paper", cls=RunCommand)(paper.paper)
app.command("submit", cls=RunCommand)(entries.submit)
app.command("verify", cls=OwnOutCommand)(entries.verify)
app.command("publish", cls=Command)(entries.publish)
