"""How commands take a run: by its name, the beginning of one, or its folder; the shell completes names. And what it
consists of.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench import registry
from adaptive_bench.errors import UsageError
from adaptive_bench.store import manifest
from adaptive_bench.store.runs import DEFAULT_OUT, find_run, plugins_in, run_folders

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


@contextmanager
def naming_plugins(run: Path) -> Iterator[None]:
    """Within the block an unknown name is told with the plugin files that a run was made with and that are not loaded.

    Args:
        run: Its folder; another one says of no plugin.
    """
    try:
        yield
    except UsageError as error:
        lacking = [path for path in plugins_in(run) if path not in registry.plugin_files()]
        if not lacking:
            raise
        options = " ".join(f"--plugin {shlex.quote(str(path))}" for path in lacking)
        gone = "".join(f" There is no {path} any more." for path in lacking if not path.is_file())
        raise UsageError(f"{error} The run was made with `{options}`: give it too.{gone}") from error


def manifest_of(run: Path) -> manifest.Manifest:
    """What a run consists of and where it is.

    Raises:
        EnvironmentProblem: The folder is not one of a run, or was damaged.
    """
    if (found := manifest.read(run)) is not None:
        return found
    # A run of an earlier version left no manifest: what belongs to it is asked of its config, and of its tasks.
    from adaptive_bench.runs.outcome.trained import manifest_of as of_any_version

    return of_any_version(run)
