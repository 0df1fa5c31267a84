"""Defines what commands share: how they read values, options that several of them take, and where results go."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from adaptive_bench import output, registry
from adaptive_bench.cli.terminal_text import paragraph
from adaptive_bench.errors import AdaptiveBenchError, UsageError, message_of, one_line
from adaptive_bench.progress import quiet
from adaptive_bench.store.atomic import json_text
from adaptive_bench.store.runs import DEFAULT_OUT as DEFAULT_OUT
from adaptive_bench.store.runs import LAST, newest, plugins_in, run_folders, tables
from adaptive_bench.store.runs import find_run as find_run
from adaptive_bench.validation import MOST_THREADS, rule_of


def names_of(group: registry.Group) -> Callable[[str], list[str]]:
    """A shell completion for names of a group; in a list with commas it completes the last name."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in registry.names(group) if name.startswith(last)]

    return complete


def naming(group: registry.Group, said: str) -> Any:
    """An option whose value names things of a group."""
    return typer.Option(autocompletion=names_of(group), help=said)


def to_folder(said: str) -> Any:
    """The option of a command that writes a folder."""
    return typer.Option("--output", "-o", parser=output.folder, help=said)


def run_names(ctx: typer.Context) -> list[str]:
    """Names of runs, for shell completion."""
    folders = run_folders(Path(ctx.params.get("out") or DEFAULT_OUT))
    return [folder.name for folder in folders] + [LAST] * bool(folders)


def debugging() -> bool:
    """Whether the command was given with `--debug`, which every command takes."""
    return "--debug" in sys.argv


def writable(text: str) -> Path:
    """The file of an option, refused before the work whose results would be lost if it cannot be written."""
    output.check(path := Path(text))
    return path


Out = Annotated[Path, typer.Option(readable=False, help="Folder of the runs.")]  # checked by `store.runs`
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        autocompletion=run_names,
        help="Name of a run (see `list runs`), the beginning of one, `last`, or its folder.",
    ),
]
Runs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN]...",
        autocompletion=run_names,
        help="Names of runs (see `list runs`), their beginnings, folders or `last`; without any, the newest.",
    ),
]
RunOrModel = Annotated[
    str,
    typer.Argument(
        metavar="RUN|MODEL",
        autocompletion=run_names,
        help="A run: its name or folder, or `last`; a saved model; or nano, a folder, a hub id.",
    ),
]
NumFewshot = Annotated[
    int | None, typer.Option(min=0, help="Worked examples before each question; default: the task's own number.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda:0, ...")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with local data files (or set ADAPTIVE_BENCH_DATA).")]
RecordFile = Annotated[
    Path | None, typer.Option("--output", "-o", parser=writable, help="Write the record as JSON, - for stdout.")
]
Precision = Annotated[Literal["fp32", "bf16"], typer.Option(help="Precision of the weights.")]
Threads = Annotated[int | None, typer.Option(min=1, max=MOST_THREADS, help="CPU threads; default: as torch decides.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", help="Python file that registers methods, tasks, families, ...; repeatable."),
]


class StrictCommand(TyperCommand):
    """A command that takes each value once, and refuses empty ones, such as those of unset shell variables."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # shell completion parses half a line
            return super().parse_args(ctx, args)
        # `debugging` looks for it in `sys.argv`, so commands need no such option.
        args = [one for one in args if one != "--debug"]
        # A first parse only counts values, of a copy, since the parser empties the list.
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for param, times in Counter(order).items():  # `order` names a parameter once for each time that it was given
            given = values.get(param.name)
            # Arguments are no flags, and lack the attribute.
            if times > 1 and param.nargs == 1 and not (param.multiple or getattr(param, "is_flag", False)):
                raise UsageError(
                    f"{_name(param)} takes one value, got it {times} times. Give it once; a list has commas: a,b."
                )
            for part in given if isinstance(given, list | tuple) else [given]:
                if isinstance(part, str) and not part.strip():
                    raise UsageError(f"{_name(param)} needs a value, got an empty one. Give a value or leave it out.")
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:  # pydantic's messages lack the value
            given = None if error.param is None else values.get(error.param.name)
            error.message = f"{error.message.rstrip('.')}, got {given!r}."
            raise


def _name(param: Any) -> str:
    return max(param.opts, key=len) if param.param_type_name == "option" else param.name.upper()


class Command(StrictCommand):
    """A command of this package, which silences the libraries unless `--debug` is given."""

    def invoke(self, ctx: Any) -> Any:
        if not debugging():
            quiet()
        return super().invoke(ctx)


def check_goes_with(option: str, is_given: bool, other: str, is_there: bool) -> None:
    """Refuse an option that means nothing without another one."""
    if is_given and not is_there:
        raise UsageError(f"{option} is for {other}. Add {other}, or leave {option} out.")


def parsed(text: str, option: str, kind: Any) -> Any:
    """The value of an option that is written as in a config, such as `0.1,0.25`; `kind` is its type there."""
    from pydantic import TypeAdapter, ValidationError  # imports slower than help may print

    try:
        return TypeAdapter(kind).validate_python(text)
    except ValidationError as error:
        rule = rule_of(error.errors()[0])
        raise UsageError(f"{option} is wrong: {rule}, got {one_line(text, 100)!r}.") from None


def shares(text: str, option: str) -> tuple[float, ...]:
    """The shares to save of a text such as `0.1,0.25`, rising."""
    from adaptive_bench.recipe import Shares

    found: tuple[float, ...] = parsed(text, option, Shares)
    return found


def tables_of(runs: list[str] | None, out: Path, plugin: list[Path] | None = None) -> list[Path]:
    """The tables of the named runs, or of all runs below a named folder; without names, the output folder's newest.

    Their plugin files are loaded as by `open_run`: a task's own file knows the score of a guess.
    """
    found = [path for run in runs for path in tables(find_run(run, out))] if runs else [newest(out)]
    registry.load_plugins(plugin)
    for file in () if plugin else dict.fromkeys(file for path in found for file in plugins_there(path.parent)):
        try:
            registry.load_plugins([file])
        except AdaptiveBenchError as error:  # tables are shown all the same
            typer.echo(paragraph(f"Note: {file}, a plugin of this run, is not loaded: {message_of(error)}"), err=True)
    return found


def open_run(run: str, out: Path, plugin: list[Path] | None) -> Path:
    """Find a run's folder, and load the plugin files that it was made with, or those that are named instead."""
    folder = find_run(run, out)
    registry.load_plugins(plugin or plugins_there(folder))
    return folder


def plugins_there(run: Path) -> list[Path]:
    """The plugin files of a run that are still there; one that is gone is said, but may not be needed."""
    found = plugins_in(run)
    for path in found:
        if not path.is_file():
            typer.echo(paragraph(f"Note: {path}, a plugin of this run, is not there. Name it with --plugin."), err=True)
    return [path for path in found if path.is_file()]


def tasks_and_data(tasks: str, data_dir: Path | None) -> tuple[list[str], Path | None]:
    """Find the tasks that `--tasks` names and the folder of local data, before a model is loaded."""
    from adaptive_bench.config import Names, check_data_folder
    from adaptive_bench.data import data_root
    from adaptive_bench.evaluation.lookup import expand_tasks, find_task

    check_data_folder(root := data_root(data_dir))
    names = list(expand_tasks(parsed(tasks, "--tasks", Names)))
    for name in names:
        find_task(name)
    return names, root


def give_record(record: Mapping[str, Any], to: Path | None, as_json: bool, shown: Callable[[Any], str]) -> None:
    """Write what a command measured as JSON if that is asked for, and print it.

    Args:
        to: File to write, or standard output, on which nothing else is printed then; `None` for no file.
        as_json: Whether to print JSON instead of the text that `shown` makes.
    """
    if to is not None:
        output.write_text(to, json_text(record))
    if output.is_stdout(to):
        return
    if as_json:
        typer.echo(json_text(record), nl=False)
    else:
        typer.echo(shown(record) + (f"\n\nWritten to {to}" if to is not None else ""))
