"""What commands have in common: how they read values, options that several of them take, and where results go."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from adaptive_bench import output, registry
from adaptive_bench.errors import UsageError, one_line
from adaptive_bench.startup import QUIET, silence
from adaptive_bench.store.atomic import json_text
from adaptive_bench.store.runs import DEFAULT_OUT as DEFAULT_OUT
from adaptive_bench.store.runs import LAST, newest, plugins_in, run_folders, tables
from adaptive_bench.store.runs import find_run as find_run
from adaptive_bench.validation import LARGEST_COUNT, MOST_THREADS, each_once, parts_of

if TYPE_CHECKING:
    from adaptive_bench.store.manifest import Manifest

Number = TypeVar("Number", int, float)
_COMMA = re.compile(r",(?![^\[]*\])")  # those in the brackets of a method spec belong to the spec
# The libraries' own switches, set before they are imported; the progress shown is ours alone.
_QUIET = {
    QUIET: "1",
    "DATASETS_VERBOSITY": "error",
    "HF_HUB_VERBOSITY": "error",
    "LMEVAL_LOG_LEVEL": "ERROR",
    "PYTHONWARNINGS": "ignore",  # for worker processes
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def names_of(group: registry.Group) -> Callable[[str], list[str]]:
    """What the shell completes: names of a group, of a list with commas the last one."""

    def complete(incomplete: str) -> list[str]:
        *before, last = _COMMA.split(incomplete)
        return [",".join([*before, name]) for name in registry.names(group) if name.startswith(last)]

    return complete


def run_names(ctx: typer.Context) -> list[str]:
    """Names of runs that the shell completes."""
    folders = run_folders(Path(ctx.params.get("out") or DEFAULT_OUT))
    return [folder.name for folder in folders] + [LAST] * bool(folders)


# `main` reads it from the arguments before Typer parses them. A function that wants to know has a parameter `debug`.
Debug = Annotated[bool, typer.Option("--debug", help="Show library messages, and the traceback of an error.")]
Out = Annotated[Path, typer.Option(readable=False, help="Folder of the runs.")]  # whether it is, `store.runs` says
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
        help="A run, by its name or folder or as `last`; a saved model; or nano, a folder, a hub id.",
    ),
]
NumFewshot = Annotated[
    int | None, typer.Option(min=0, help="Worked examples before each question; default: the task's own number.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda:0, ...")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with local data files (or set ADAPTIVE_BENCH_DATA).")]
RecordFile = Annotated[
    Path | None, typer.Option("--output", "-o", parser=output.file, help="Write the record as JSON, - for stdout.")
]
PRECISIONS = ("fp32", "bf16")
Precision = Annotated[str, typer.Option(metavar="|".join(PRECISIONS), help="Of the weights.")]
Threads = Annotated[int | None, typer.Option(min=1, max=MOST_THREADS, help="CPU threads; default: as torch decides.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
Plugins = Annotated[
    list[Path] | None, typer.Option("--plugin", help="Python file that registers methods, tasks or models; repeatable.")
]


class StrictCommand(TyperCommand):
    """A command that takes each value once, and none that is empty, such as a shell's variable that is not set."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click; the first look only counts."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for param, times in Counter(order).items():
            given = values.get(param.name)
            if times > 1 and param.nargs == 1 and not (_is(param, "multiple") or _is(param, "is_flag")):
                raise UsageError(
                    f"{_name(param)} takes one value, got it {times} times. Give it once; a list has commas: a,b."
                )
            for part in given if isinstance(given, list | tuple) else [given]:
                if isinstance(part, str) and not part.strip():
                    raise UsageError(f"{_name(param)} needs a value, got an empty one. Give a value or leave it out.")
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            given = None if error.param is None else values.get(error.param.name)
            if given is not None and str(given) not in error.message:  # pydantic says the rule alone
                error.message = f"{error.message.rstrip('.')}, got {given!r}."
            raise


def _is(param: Any, what: str) -> bool:
    return bool(getattr(param, what, False))  # arguments have none of it


def _name(param: Any) -> str:
    return max(param.opts, key=len) if param.param_type_name == "option" else param.name.upper()


class Command(StrictCommand):
    """A command that takes `--debug`, and keeps the libraries quiet without it."""

    @cached_property
    def _debug(self) -> list[Any]:
        there = any(param.name == "debug" for param in self.params)
        return [] if there else options_of([keyword("debug", Debug, False)])

    def get_params(self, ctx: Any) -> list[Any]:
        """See click; `--help` stays the last one."""
        own = super().get_params(ctx)
        return [*own[:-1], *self._debug, own[-1]]

    def invoke(self, ctx: Any) -> Any:
        """See click."""
        if not ctx.params["debug"]:
            quiet()
        for option in self._debug:
            del ctx.params[option.name]
        return super().invoke(ctx)


def keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """A parameter of a function from which Typer makes an option."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def options_of(parameters: Iterable[inspect.Parameter]) -> list[Any]:
    """Options of click; Typer's public way to them is a command made of a signature."""

    def takes_them() -> None: ...

    # Typer reads the options off it; functions may have one, which their type does not say.
    takes_them.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(takes_them)
    return list(typer.main.get_command(app).params)


def quiet() -> None:
    """Silence the libraries below us, in worker processes too. What the user has set already stays."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    warnings.simplefilter("ignore")
    silence()


def items(text: str, option: str) -> tuple[str, ...]:
    """`a,b` becomes its items.

    Raises:
        UsageError: One is empty or stands there twice.
    """
    try:
        return each_once(parts_of(text))
    except ValueError as error:
        raise UsageError(f"{option} is wrong: {error}, got {one_line(text, 100)}.") from None


def numbers(
    text: str, option: str, kind: Callable[[str], Number], rule: str, fits: Callable[[Number], bool]
) -> tuple[Number, ...]:
    """`1,8,32` becomes numbers.

    Raises:
        UsageError: A part is no number that `fits`, stands there twice, or there is none; says `option takes rule`.
    """
    try:
        found = [kind(part) for part in items(text, option)]
    except ValueError:
        found = []
    if not found or not all(map(fits, found)):
        raise UsageError(f"{option} takes {rule}, got {one_line(text, 100)!r}.")
    return tuple(dict.fromkeys(found))


def is_count(number: int) -> bool:
    """Whether so many rows, steps or documents can be meant."""
    return 1 <= number <= LARGEST_COUNT


def is_share(number: float) -> bool:
    """Whether a saving can be that share of all."""
    return 0 <= number < 1


def check_word(option: str, value: str | None, known: Iterable[str]) -> None:
    """Refuse a word that is none of those an option takes.

    Raises:
        UsageError: It is another one; says which is meant.
    """
    if value is not None and value not in known:
        raise UsageError(f"{option} is one of {', '.join(known)}, got {value!r}. {registry.did_you_mean(value, known)}")


def tables_of(runs: list[str] | None, out: Path) -> list[Path]:
    """The tables of runs, by their names or of all below a folder; without any the newest of the output folder's."""
    return [path for run in runs for path in tables(find_run(run, out))] if runs else [newest(out)]


def manifest_of(run: Path) -> Manifest:
    """What a run consists of and where it is.

    Raises:
        UsageError: The folder is not one of a run.
        EnvironmentProblem: It was damaged.
    """
    from adaptive_bench.store import manifest  # with it comes NumPy, which no help needs

    return manifest.of_run(run)


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


def tasks_and_data(tasks: str, data_dir: Path | None) -> tuple[list[str], Path | None]:
    """The tasks that `--tasks` names, each found, and the folder of local data; before a model is loaded.

    Raises:
        UsageError: There is no task, or none of that name.
        EnvironmentProblem: The folder is not there.
    """
    from adaptive_bench.config_file import check_data_folder
    from adaptive_bench.data import data_root
    from adaptive_bench.evaluation.lookup import expand_tasks, find_task

    check_data_folder(root := data_root(data_dir))
    names = list(expand_tasks(items(tasks, "--tasks")))
    if not names:
        raise UsageError(f"--tasks names at least one task, got {tasks!r}. `list tasks` shows them.")
    for name in names:
        find_task(name)
    return names, root


def give_record(record: Mapping[str, Any], to: Path | None, as_json: bool, shown: Callable[[Any], str]) -> None:
    """Write what a command measured as JSON where that is asked for, and print it; nothing besides on standard output.

    Args:
        to: Where to; `None` for nowhere.
        as_json: Print JSON instead of what `shown` makes of it.
    """
    if to is not None:
        output.write_text(to, json_text(record))
    if output.is_stdout(to):
        return
    if as_json:
        typer.echo(json_text(record), nl=False)
    else:
        typer.echo(shown(record) + (f"\n\nWritten to {to}" if to is not None else ""))
