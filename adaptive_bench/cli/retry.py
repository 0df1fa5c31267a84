"""`adaptive-bench retry`: give a run's command again, from what it wrote down of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench import registry
from adaptive_bench.cli.named_run import Run
from adaptive_bench.cli.strict import Debug
from adaptive_bench.cli.waiting import load_libraries


def retry(
    run: Run,
    plugin: Annotated[list[Path] | None, typer.Option(help="Python file the run was made with.")] = None,
    debug: Debug = False,
) -> None:
    """Do what failed or was never finished in a run; what is done stays, and nothing else is computed."""
    from adaptive_bench.cli.execution import execute

    registry.load_plugins(plugin)
    load_libraries()
    from adaptive_bench.runs.outcome.trained import config_of

    execute(config_of(run), debug=debug)
