"""`adaptive-bench retry`: give a run's command again, from what it wrote down of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench import registry
from adaptive_bench.cli.named_run import Run, naming_plugins
from adaptive_bench.cli.strict import Debug
from adaptive_bench.cli.waiting import load_libraries
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.runs import plugins_in


def retry(
    run: Run,
    plugin: Annotated[list[Path] | None, typer.Option(help="Python file of the run, where it moved.")] = None,
    debug: Debug = False,
) -> None:
    """Do what failed or was never finished in a run; what is done stays, and nothing else is computed."""
    from adaptive_bench.cli.execution import execute

    # One that is gone may be one that nothing needs; if something does, the error names it.
    registry.load_plugins(plugin or [path for path in plugins_in(run) if path.is_file()])
    load_libraries()
    from adaptive_bench.runs.outcome.trained import config_of

    config = config_of(run)
    with naming_plugins(run):
        for text in config.methods:
            registry.check_name("methods", MethodSpec.parse(text).name)
    execute(config, debug=debug)
