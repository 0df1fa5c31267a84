"""How commands take a run: by its name, the beginning of one, or its folder; the shell completes names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench.store.runs import DEFAULT_OUT, find_run, run_folders

_HELP = "Name of a run (see `list runs`), the beginning of one, or its folder."


def run_names() -> list[str]:
    """Names the shell completes."""
    return [folder.name for folder in run_folders(DEFAULT_OUT)]


Run = Annotated[Path, typer.Argument(metavar="RUN", parser=find_run, autocompletion=run_names, help=_HELP)]
# Where all runs of an output folder may be meant, or the newest.
Runs = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[RUN]...",
        parser=find_run,
        autocompletion=run_names,
        help="Names of runs (see `list runs`), their beginnings, or folders; without any, the newest run.",
    ),
]
