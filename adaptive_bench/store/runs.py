"""Where runs lie, and what they are called: found by their folder or their name, without reading what they hold."""

from __future__ import annotations

import difflib
import errno
import json
import os
import shlex
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of, one_line
from adaptive_bench.store.keys import run_key
from adaptive_bench.store.shelves import check_home, check_listable, folders_in, is_output
from adaptive_bench.strict_yaml import read_mapping
from adaptive_bench.validation import as_path

DEFAULT_OUT = Path("runs")
LAST = "last"  # stands for the name of the run that was begun last
KEY_DIGITS = 8  # hexadecimal ones of a run's key, at the end of its name
_ENTRY = "entry.json"  # of a run that is passed on, whose table may be left to its records
_ENDED = ("table.json", "run.json")  # a run that has ended leaves both: where one is alone, the other was lost
# A run begins with the first two and ends with the third: any of them is left where another was lost.
_OF_A_RUN = ("config.yaml", "manifest.json", "run.json")
# What a run writes into its folder by itself.
OWN_FILES = frozenset(
    {*_OF_A_RUN, "command.json", "table.json", "answers.json", "methods.json", "leaderboard.md", "data_card.md"}
    | {"remembered.json", "remembered.jsonl"}
)
_MOST_NAMED = 5


def find_run(text: str | Path, out: Path = DEFAULT_OUT) -> Path:
    """The folder of a run: a folder, or a run's name, or the beginning of one or of its key if only one run has it; or
    `last`, the run that was begun last. Those of another output folder are `<folder>/<name>` and `<folder>/last` too.

    Only where runs of an output folder lie is looked, whatever the folder holds beside them.

    Args:
        out: Where runs are looked for by a name alone.

    Raises:
        UsageError: No run is called so, or several are.
    """
    path = _path(text)
    if path.is_dir():
        return path
    is_name = path.name == str(path)
    home = out if is_name else path.parent
    named = {folder: folder.name for folder in _runs_of(home, deep=is_name)}
    exact = [folder for folder, name in named.items() if name == path.name]
    if path.name == LAST and named and not exact:
        return next(iter(named))
    found = exact or [folder for folder, name in named.items() if _is_called(name, path.name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(map(run_name, found[:_MOST_NAMED])) + (", ..." if len(found) > _MOST_NAMED else "")
    rule = (
        f"A run is named by its folder, its name, the beginning of its name or `last`, got {one_line(str(text), 100)!r}"
    )
    if found:
        raise UsageError(f"{rule}, which {len(found)} runs begin with: {names}. Give more of the name.")
    check_listable(home)
    if path.exists():
        raise UsageError(f"{rule}, which is a file. `adaptive-bench list runs --out {home}` shows the runs.")
    if (lost := next(filter(is_lost, (home / path.name, home / "runs" / path.name)), None)) is not None:
        raise UsageError(
            f"{rule}, and {str(lost)!r} is a link that leads nowhere. Remove it, or put back what it led to."
        )
    close = difflib.get_close_matches(path.name, named.values(), n=1)
    there = f"`adaptive-bench list runs --out {home}` shows the runs." if named else "Give `adaptive-bench run` first."
    hint = f"Did you mean {close[0]!r}?" if close else there
    raise UsageError(f"{rule}, but there is no such folder and no such run in {str(home)!r}. {hint}")


def _path(text: str | Path) -> Path:
    """A path that can be looked at; no file system has others.

    Raises:
        UsageError: It names a user who is not known, or is too long.
    """
    try:
        path = as_path(text, "A run is named by its folder or its name").expanduser()
        path.exists()
    except PermissionError:
        raise
    except (OSError, RuntimeError) as error:
        said = one_line(str(text), 100)
        raise UsageError(f"A run is named by its folder or its name, got {said!r}: {message_of(error)}") from error
    return path


def _runs_of(home: Path, *, deep: bool) -> list[Path]:
    """Runs of an output folder, and those in a folder of runs; the newest first.

    Args:
        deep: Those of output folders in it as well.
    """
    shelves = [home, home / "runs", *(inner / "runs" for inner in (folders_in(home) if deep else ()))]
    return _begun([folder for shelf in dict.fromkeys(shelves) for folder in folders_in(shelf)])


def _begun(folders: Iterable[Path]) -> list[Path]:
    """Those of some folders that are runs, the newest first."""
    found = []
    for folder in folders:
        for name in _OF_A_RUN:
            with suppress(OSError):  # it was no folder, is gone by now, or may not be read
                found.append(((folder / name).stat().st_mtime, folder))
                break
    return [folder for _, folder in sorted(found, key=lambda one: one[0], reverse=True)]


def _is_called(name: str, text: str) -> bool:
    """Whether a run's name begins with a text, or ends with it, or its key begins with it."""
    return name.startswith(text) or name.endswith(f"-{text}") or name.rpartition("-")[2].startswith(text)


def check_output(out: Path) -> None:
    """Refuse an output folder that was named and is not there; before the first run the default one is not.

    Raises:
        EnvironmentProblem: It is missing, no folder, or may not be read.
    """
    check_home(out)
    if not out.is_dir() and (out.exists() or out != DEFAULT_OUT):
        what = "is no folder" if out.exists() else "does not exist"
        raise EnvironmentProblem(
            f"Runs are looked for in the folder that their --out was, but {str(out)!r} {what}. Correct --out."
        )


def run_folders(out: Path) -> list[Path]:
    """Runs that were begun in an output folder, or somewhere below it; the newest first. What cannot be read has none,
    and among records nobody looks for runs.
    """
    return _begun(folders_of_runs(out, *_OF_A_RUN))


def is_entry(folder: Path) -> bool:
    """Whether a folder is a run that is passed on: its records are packed, and its models are elsewhere."""
    return (folder / _ENTRY).is_file()


def check_run(folder: Path) -> None:
    """Refuse what is no run where one is needed.

    Raises:
        UsageError: It is another folder; or an entry, with what makes a run of it.
    """
    refuse_entry(folder)
    if not is_run(folder):
        raise UsageError(
            f"A run is a folder with a config.yaml, its manifest.json and, once it has ended, its run.json, but "
            f"{str(folder)!r} has none of them. `adaptive-bench list runs{out_option(folder)}` shows the runs."
        )


def out_option(folder: Path) -> str:
    """The option that names the output folder which a folder is, or is a part of; empty where it is the default or
    none.
    """
    place = next((one for one in (folder.absolute(), *folder.absolute().parents) if is_output(one)), None)
    return "" if place in (None, DEFAULT_OUT.absolute()) else f" --out {shlex.quote(str(place))}"


def is_lost(path: Path) -> bool:
    """Whether a path is a link to what is not there, or one in a circle."""
    return path.is_symlink() and not path.exists()


def refuse_entry(folder: Path) -> None:
    """Refuse an entry where what lies beside a run is needed.

    Raises:
        UsageError: With what makes a run of it.
    """
    if is_entry(folder):
        quoted = shlex.quote(str(folder))
        raise UsageError(
            f"A run has its records beside it, but {str(folder)!r} is an entry of a board. Give `adaptive-bench "
            f"leaderboard unpack {quoted}` and the first command that it prints, then name the run; `adaptive-bench "
            f"leaderboard build {quoted}` makes its board."
        )


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, one that lost its `config.yaml` included."""
    return any((folder / name).is_file() for name in _OF_A_RUN)


def run_name(folder: Path) -> str:
    """The shortest text by which `find_run` finds a run: its name, with the output folder unless that is `runs`."""
    home = folder.parent.parent
    if folder.parent.name != "runs":
        return str(folder)
    return folder.name if home == DEFAULT_OUT else str(home / folder.name)


def tables(folder: Path) -> list[Path]:
    """The tables of a run's folder, or of every run below a folder that has ended: one that is gone by now as well,
    which whoever reads it says.

    Raises:
        UsageError: There is neither a run nor an entry.
        EnvironmentProblem: There are runs, but none has ended.
    """
    found = [folder / "table.json"] if has_ended(folder) or is_entry(folder) else tables_below(folder)
    if found:
        return found
    check_listable(folder)
    if not (begun := run_folders(folder)):
        raise UsageError(
            f"A board is made of runs, which have a config.yaml, and entries, which have an entry.json, but in "
            f"{str(folder)!r} there is neither. `adaptive-bench list runs` shows the runs; `adaptive-bench run` makes "
            f"the first."
        )
    raise EnvironmentProblem(
        f"A run leaves its table.json when it ends, but none in {str(folder)!r} has ended. `adaptive-bench retry "
        f"{shlex.quote(run_name(begun[0]))}` goes on with the newest."
    )


def has_ended(folder: Path) -> bool:
    """Whether a folder has the table of a run, or what says how the run ended."""
    return any((folder / name).is_file() for name in _ENDED)


def tables_below(folder: Path) -> list[Path]:
    """As `tables`, of every run below a folder; there may be none."""
    return [run / "table.json" for run in folders_of_runs(folder, *_ENDED, _ENTRY)]


def output_of(run: Path) -> Path:
    """The output folder of a run, wherever it lies by now; one that was moved away from its records is asked where they
    were.

    Raises:
        EnvironmentProblem: Its `config.yaml` is damaged, or not there.
    """
    home = run.resolve().parent.parent
    if (home / "records").is_dir():
        return home
    named = Path(config_in(run).get("out", DEFAULT_OUT))
    return home if run.resolve().parent.name == "runs" and not (named / "records").is_dir() else named


def plugins_in(folder: Path) -> list[Path]:
    """The plugin files that a run was made with, as its `command.json` says; none where that cannot be used, of which
    `read_run` says so.
    """
    try:
        check_files(folder, "command.json")
        about = json.loads((folder / "command.json").read_text(encoding="utf-8"))
    except (AdaptiveBenchError, OSError, ValueError, RecursionError):
        return []
    named = about.get("plugins") if isinstance(about, dict) else None
    return [Path(path) for path in named if isinstance(path, str)] if isinstance(named, list) else []


def run_command(folder: Path, plugins: Iterable[Path] | None = None, directory: Path | None = None) -> str:
    """The command that repeats a run, or goes on with it, where it lies now: a moved one is told so by `--out`.

    Args:
        plugins: Files to name; by default those that the run was made with.
        directory: Where the command is to be given; by default the working directory.
    """
    named = plugins_in(folder) if plugins is None else plugins
    options = [part for path in named for part in ("--plugin", str(path))]
    home = folder.absolute().parent.parent
    if folder.parent.name == "runs" and _written_out(folder, directory or Path.cwd()) not in (None, home.resolve()):
        options += ["--out", str(home)]
    return shlex.join(["adaptive-bench", "run", "--config", str(folder / "config.yaml"), *options])


def _written_out(folder: Path, directory: Path) -> Path | None:
    """The output folder that a run's `config.yaml` names; `None` where it cannot be read."""
    try:
        return (directory / str(config_in(folder).get("out", DEFAULT_OUT))).resolve()
    except (AdaptiveBenchError, OSError):
        return None


def config_in(folder: Path) -> dict[str, Any]:
    """What the `config.yaml` of a run says.

    Raises:
        EnvironmentProblem: It is damaged, or not there.
    """
    check_files(folder, "config.yaml")
    if not (folder / "config.yaml").is_file():
        raise EnvironmentProblem(
            f"A run is what its config.yaml says, but in {str(folder)!r} config.yaml is missing. {_PUT_BACK}"
        )
    try:
        return read_mapping(folder / "config.yaml")
    except UsageError as error:  # nobody writes it by hand
        raise EnvironmentProblem(f"The config.yaml of a run is damaged. {error} {_PUT_BACK}") from error


_PUT_BACK = (
    "Put the run's own back; or give `adaptive-bench run` the options that the run was made with: it writes the file "
    "again and computes nothing twice."
)


def check_files(folder: Path, *names: str) -> None:
    """Refuse a run with anything but a file where one of its own files is: a folder or a circle of links stands in the
    way of whoever writes it again, and whoever reads a pipe waits without end.

    Args:
        names: Of the files that are needed; by default all that a run writes.

    Raises:
        EnvironmentProblem: With how it goes away.
    """
    if is_lost(folder):
        raise EnvironmentProblem(
            f"A run has a folder, but {str(folder)!r} is a link that leads nowhere. Remove it, `rm "
            f"{shlex.quote(str(folder))}`, or put the folder back that it led to, and give the same command again."
        )
    for name in names or sorted(OWN_FILES):
        file = folder / name
        try:
            mode = file.stat().st_mode
        except OSError as error:
            if error.errno != errno.ELOOP:  # what is not there, or may not be read, is told by whoever needs it
                continue
            kind = "a link that leads in a circle"
        else:
            if stat.S_ISREG(mode):
                continue
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        if name == "config.yaml":  # which the command needs
            then = _PUT_BACK
        else:
            then = f"Then give `{run_command(folder)}`, which writes what is missing and computes nothing twice."
        raise EnvironmentProblem(
            f"What a run writes into its folder are files, but {name} in {str(folder)!r} is {kind}. Remove it: `rm -r "
            f"{shlex.quote(str(file))}`. {then}"
        )


def check_key(folder: Path, name: str, key: str, again: str) -> None:
    """Refuse a file of a run that is not of the `config.yaml` beside it.

    Args:
        name, key: Of the file, and the key of the run that it says it is of.
        again: The command that writes the file again.

    Raises:
        EnvironmentProblem: It is of another run. Which of the two was changed is seen by the name of the folder. Or the
            `config.yaml` is damaged.
    """
    own = key_in(folder)
    if key == own:
        return
    said = f"{name} in {str(folder)!r} is of the run {key!r} and the config.yaml there of {own!r}"
    rule = "What a run wrote is read beside its own config.yaml, but"
    if folder.resolve().name.endswith(own[:KEY_DIGITS]):
        raise EnvironmentProblem(f"{rule} {said}: {name} is another run's. To write the run's own: `{again}`.")
    raise EnvironmentProblem(f"{rule} {said}: config.yaml was changed, or is another run's. {_PUT_BACK}")


def key_in(folder: Path) -> str:
    """The key of the configuration in a run's folder.

    Raises:
        EnvironmentProblem: Its `config.yaml` is damaged, or not there.
    """
    try:
        return run_key(config_in(folder))
    except (TypeError, ValueError) as error:  # a number without end, say
        raise EnvironmentProblem(
            f"A run's config.yaml holds names, numbers and lists, but that in {str(folder)!r} does not "
            f"({message_of(error)}). {_PUT_BACK}"
        ) from error


def folders_of_runs(above: Path, *names: str) -> list[Path]:
    """Folders with a file of one of some names, in order; not among the records of an output folder, which are many and
    hold no run, nor where nothing can be read. Links are followed where they are runs.
    """
    found: list[Path] = []
    for place, below, files in os.walk(above):
        if not set(names).isdisjoint(files):
            found.append(Path(place))
        if Path(place).name == "runs":  # a run that was moved to another disk
            links = (Path(place, one) for one in below if Path(place, one).is_symlink())
            found += (link for link in links if any((link / name).is_file() for name in names))
        below[:] = [one for one in below if not (one == "records" and "runs" in below)]
    return sorted(found)


def newest(folder: Path) -> Path:
    """The table of the run below an output folder that ended last.

    Raises:
        EnvironmentProblem: None has.
    """
    if not run_folders(folder) and not tables_below(folder):
        check_output(folder)
        raise EnvironmentProblem(
            f"There is no run in {str(folder)!r} yet. Give `adaptive-bench run` first, or name the folder that its "
            f"--out was with --out."
        )
    return max(tables(folder), key=_ended_s)


def _ended_s(table: Path) -> float:
    """When a table was written; of one that is gone when the run said that it ended, of which only its name may be
    left.
    """
    return next((file.stat().st_mtime for name in _ENDED if (file := table.with_name(name)).is_file()), 0.0)
