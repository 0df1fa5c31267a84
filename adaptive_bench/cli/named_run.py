"""How commands take a run: by its name, the beginning of one, its folder, or `last`; the shell completes names. And
what it consists of.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from adaptive_bench import registry
from adaptive_bench.cli.strict import Command, keyword
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store.runs import DEFAULT_OUT, LAST, find_run, plugins_in, run_folders

if TYPE_CHECKING:
    from adaptive_bench.store.manifest import Manifest

_HELP = "Name of a run (see `list runs`), the beginning of one, `last`, or its folder."
Out = Annotated[Path, typer.Option(readable=False, help="Folder of the runs.")]  # whether it is, `store.runs` says
_out: ContextVar[Path] = ContextVar("_out", default=DEFAULT_OUT)  # `--out` of the command that is parsed


def run_names(ctx: typer.Context) -> list[str]:
    """Names the shell completes."""
    folders = run_folders(Path(ctx.params.get("out") or DEFAULT_OUT))
    return [folder.name for folder in folders] + [LAST] * bool(folders)


def named(text: str | Path) -> Path:
    """The folder of a run that a command was given; a name is looked for under its `--out`."""
    return find_run(text, _out.get())


class RunCommand(Command):
    """A command that takes runs: a name among them is one of the folder `--out`, whether or not its function has a
    parameter `out`.

    Attributes:
        checks_out: Whether the folder has to be there if it is given.
    """

    checks_out: ClassVar[bool] = True

    added: ClassVar[tuple[Any, ...]] = (
        keyword("out", Out, DEFAULT_OUT),
        *Command.added,
    )

    @contextmanager
    def parsing(self, given: Mapping[str, Any]) -> Iterator[None]:
        """The order of options and names does not matter."""
        if given.get("out") and self.checks_out and not Path(given["out"]).is_dir():
            raise EnvironmentProblem(
                f"--out is the folder of the runs, but {given['out']!r} does not exist or is no folder. Correct it or "
                f"leave it out."
            )
        token = _out.set(Path(given.get("out") or DEFAULT_OUT))
        try:
            yield
        finally:
            _out.reset(token)


class OwnOutCommand(RunCommand):
    """One whose function looks at `--out` itself: it makes the folder, or its `--out` was once another one."""

    checks_out = False


Run = Annotated[Path, typer.Argument(metavar="RUN", parser=named, autocompletion=run_names, help=_HELP)]
# Where all runs of an output folder may be meant, or the newest.
Runs = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[RUN]...",
        parser=named,
        autocompletion=run_names,
        help="Names of runs (see `list runs`), their beginnings, folders or `last`; without any, the newest.",
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


def manifest_of(run: Path) -> Manifest:
    """What a run consists of and where it is.

    Raises:
        UsageError: The folder is not one of a run.
        EnvironmentProblem: It was damaged.
    """
    from adaptive_bench.store import manifest  # with it comes NumPy, which no help needs

    return manifest.of_run(run)
