"""Where runs lie, what they are called, the files in their folders, and the commands that write them again.

A run is found by its folder or its name, without reading what it holds: `<out>/runs/<name>/`, its records beside it in
`<out>/records/`.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of, one_line
from adaptive_bench.strict_yaml import read_mapping

DEFAULT_OUT = Path("runs")
LAST = "last"  # stands for the name of the run that was begun last
KEY_DIGITS = 8  # hexadecimal ones of a run's key, at the end of its name
ENTRY = "points.parquet"  # of a run that is passed on, whose table is computed from it
ENDED = ("table.json", "run.json")  # a run that has ended leaves both: where one is alone, the other was lost
# A run begins with the first two and ends with the third: any of them is left where another was lost.
BEGUN = ("config.yaml", "manifest.json", "run.json")
TABLES = ("table.json", "run.json", "answers.json", "methods.json")  # made of the records
_MOST_NAMED = 5
_PUT_BACK = (
    "Put the run's own back; or give `adaptive-bench run` the options that the run was made with: it writes the file "
    "again and computes nothing twice."
)


def is_output(folder: Path) -> bool:
    """Whether runs are written into a folder: their records lie in it, and their tables. A folder where somebody keeps
    records of another kind beside the default output folder `runs` is none.
    """

    def has_both(place: Path) -> bool:
        return (place / "records").is_dir() and (place / "runs").is_dir()

    return has_both(folder) and not has_both(folder / "runs")


def check_home(out: Path) -> None:
    """Refuse an output folder that no run can be written to or found in.

    Raises:
        UsageError: It is a part of another one.
        EnvironmentProblem: What has to be a folder in it is none.
    """
    for place in (out.absolute(), *out.absolute().parents):
        if place.name in ("runs", "records") and is_output(place.parent):
            raise UsageError(
                f"An output folder is no part of another one, got {str(out)!r}, which lies in {place.name!r} of "
                f"{str(place.parent)!r}. Give --out {place.parent}."
            )
    for folder in (out / "runs", out / "records"):
        if folder.exists() and not folder.is_dir():
            raise EnvironmentProblem(
                f"Runs and records lie in folders, but {str(folder)!r} is a file. Move it away, or name another folder "
                f"with --out."
            )


def check_output(out: Path) -> None:
    """Refuse an output folder that was named and is not there; before the first run the default one is not.

    Raises:
        EnvironmentProblem: It is missing, or no folder.
    """
    check_home(out)
    if not out.is_dir() and (out.exists() or out != DEFAULT_OUT):
        what = "is no folder" if out.exists() else "does not exist"
        raise EnvironmentProblem(
            f"Runs are looked for in the folder that their --out was, but {str(out)!r} {what}. Correct --out."
        )


def out_option(folder: Path) -> str:
    """The option that names the output folder which a folder is, or is a part of; empty where it is the default or
    none.
    """
    place = next((one for one in (folder.absolute(), *folder.absolute().parents) if is_output(one)), None)
    return "" if place in (None, DEFAULT_OUT.absolute()) else f" --out {shlex.quote(str(place))}"


def find_run(text: str | Path, out: Path = DEFAULT_OUT) -> Path:
    """The folder of a run: a folder, or a run's name, or the beginning of one or of its key if only one run has it; or
    `last`, the run that was begun last. Those of another output folder are `<folder>/<name>` and `<folder>/last` too.

    Only where runs of an output folder lie is looked, whatever the folder holds beside them.

    Args:
        out: Where runs are looked for by a name alone.

    Raises:
        UsageError: No run is called so, or several are.
    """
    path = Path(text).expanduser()
    if path.is_dir():
        return path
    is_name = path.name == str(path)
    home = out if is_name else path.parent
    places = [home, home / "runs", *(inner / "runs" for inner in (_folders_in(home) if is_name else ()))]
    named = {folder: folder.name for folder in _begun(one for place in places for one in _folders_in(place))}
    exact = [folder for folder, name in named.items() if name == path.name]
    if path.name == LAST and named and not exact:
        return next(iter(named))
    found = exact or [folder for folder, name in named.items() if _is_called(name, path.name)]
    if len(found) == 1:
        return found[0]
    rule = (
        f"A run is named by its folder, its name, the beginning of its name or `last`, got {one_line(str(text), 100)!r}"
    )
    if found:
        names = ", ".join(map(run_name, found[:_MOST_NAMED])) + (", ..." if len(found) > _MOST_NAMED else "")
        raise UsageError(f"{rule}, which {len(found)} runs begin with: {names}. Give more of the name.")
    if path.exists():
        raise UsageError(f"{rule}, which is a file. `adaptive-bench list runs --out {home}` shows the runs.")
    close = difflib.get_close_matches(path.name, named.values(), n=1)
    there = f"`adaptive-bench list runs --out {home}` shows the runs." if named else "Give `adaptive-bench run` first."
    hint = f"Did you mean {close[0]!r}?" if close else there
    raise UsageError(f"{rule}, but there is no such folder and no such run in {str(home)!r}. {hint}")


def _folders_in(home: Path) -> list[Path]:
    """What may be a folder in one; in what is none, is gone by now or may not be read, nothing."""
    try:
        with os.scandir(home) as entries:
            return sorted(home / entry.name for entry in entries if not entry.name.startswith("."))
    except OSError:
        return []


def _begun(folders: Iterable[Path]) -> list[Path]:
    """Those of some folders that are runs, each once, the newest first."""
    found = {}
    for folder in folders:
        for name in BEGUN:
            with suppress(OSError):  # it was no folder, is gone by now, or may not be read
                found[folder] = (folder / name).stat().st_mtime
                break
    return sorted(found, key=lambda folder: found[folder], reverse=True)


def _is_called(name: str, text: str) -> bool:
    """Whether a run's name begins with a text, or ends with it, or its key begins with it."""
    return name.startswith(text) or name.endswith(f"-{text}") or name.rpartition("-")[2].startswith(text)


def run_folders(out: Path) -> list[Path]:
    """Runs that were begun in an output folder, or somewhere below it; the newest first. What cannot be read has none,
    and among records nobody looks for runs.
    """
    return _begun(_with_file(out, *BEGUN))


def run_name(folder: Path) -> str:
    """The shortest text by which `find_run` finds a run: its name, with the output folder unless that is `runs`."""
    home = folder.parent.parent
    if folder.parent.name != "runs":
        return str(folder)
    return folder.name if home == DEFAULT_OUT else str(home / folder.name)


def quoted_name(folder: Path) -> str:
    """As `run_name`, as a shell takes it."""
    return shlex.quote(run_name(folder))


def retry_command(folder: Path) -> str:
    """The command that goes on with a run."""
    return f"adaptive-bench retry {quoted_name(folder)}"


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
    if not (begun := run_folders(folder)):
        raise UsageError(
            f"A board is made of runs, which have a config.yaml, and entries, which have a {ENTRY}, but in "
            f"{str(folder)!r} there is neither. `adaptive-bench list runs` shows the runs; `adaptive-bench run` makes "
            f"the first."
        )
    raise EnvironmentProblem(
        f"A run leaves its table.json when it ends, but none in {str(folder)!r} has ended. `"
        f"{retry_command(begun[0])}` goes on with the newest."
    )


def tables_below(folder: Path) -> list[Path]:
    """As `tables`, of every run below a folder; there may be none."""
    return [run / "table.json" for run in _with_file(folder, *ENDED, ENTRY)]


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

    def ended_s(table: Path) -> float:  # of a table that is gone only what says that the run ended may be left
        return next((file.stat().st_mtime for name in ENDED if (file := table.with_name(name)).is_file()), 0.0)

    return max(tables(folder), key=ended_s)


def _with_file(above: Path, *names: str) -> list[Path]:
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


def is_entry(folder: Path) -> bool:
    """Whether a folder is a run that is passed on: its measurements alone."""
    return (folder / ENTRY).is_file()


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, one that lost its `config.yaml` included."""
    return any((folder / name).is_file() for name in BEGUN)


def has_ended(folder: Path) -> bool:
    """Whether a folder has the table of a run, or what says how the run ended."""
    return any((folder / name).is_file() for name in ENDED)


def check_run(folder: Path) -> None:
    """Refuse what is no run where one is needed.

    Raises:
        UsageError: It is another folder, or an entry.
    """
    refuse_entry(folder)
    if not is_run(folder):
        raise UsageError(
            f"A run is a folder with a config.yaml, its manifest.json and, once it has ended, its run.json, but "
            f"{str(folder)!r} has none of them. `adaptive-bench list runs{out_option(folder)}` shows the runs."
        )


def refuse_entry(folder: Path) -> None:
    """Refuse an entry where what lies beside a run is needed, with what can be had of it."""
    if is_entry(folder):
        quoted = shlex.quote(str(folder))
        raise UsageError(
            f"A run has its records beside it, but {str(folder)!r} is an entry of a board. `adaptive-bench leaderboard "
            f"verify {quoted}` prints its table, `adaptive-bench leaderboard build {quoted}` makes its board, and "
            f"`adaptive-bench run --config {quoted}/config.yaml` is the run again."
        )


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
        about = json.loads((folder / "command.json").read_text(encoding="utf-8"))
        return [Path(path) for path in about["plugins"]]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return []


def run_command(folder: Path, plugins: Iterable[Path] | None = None, directory: Path | None = None) -> str:
    """The command that repeats a run, or goes on with it, where it lies now: a moved one is told so by `--out`.

    Args:
        plugins: Files to name; by default those that the run was made with.
        directory: Where the command is to be given; by default the working directory.
    """
    named = plugins_in(folder) if plugins is None else plugins
    options = [part for path in named for part in ("--plugin", str(path))]
    home = folder.absolute().parent.parent
    if folder.parent.name == "runs":
        with suppress(AdaptiveBenchError, OSError):  # a config that cannot be read names none
            written = (directory or Path.cwd()) / str(config_in(folder).get("out", DEFAULT_OUT))
            options += ["--out", str(home)] if written.resolve() != home.resolve() else []
    return shlex.join(["adaptive-bench", "run", "--config", str(folder / "config.yaml"), *options])


def config_in(folder: Path) -> dict[str, Any]:
    """What the `config.yaml` of a run says.

    Raises:
        EnvironmentProblem: It is damaged, or not there.
    """
    if not (folder / "config.yaml").is_file():
        raise EnvironmentProblem(
            f"A run is what its config.yaml says, but in {str(folder)!r} config.yaml is missing. {_PUT_BACK}"
        )
    try:
        return read_mapping(folder / "config.yaml")
    except UsageError as error:  # nobody writes it by hand
        raise EnvironmentProblem(f"The config.yaml of a run is damaged. {error} {_PUT_BACK}") from error


def read_json(path: Path) -> Any:
    """A JSON file that a run wrote into its folder.

    Raises:
        EnvironmentProblem: It cannot be read; with the command that writes it again.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise unusable(path, f"cannot be read: {message_of(error)}") from error


def unusable(path: Path, why: str) -> EnvironmentProblem:
    """What is wrong with a file of a run, as an error with the command that writes it again from what is on disk.

    Args:
        why: Ends the sentence that the file begins, without a full stop.
    """
    command = run_command(path.parent) + (" --table-only" if path.name in TABLES else "")
    return EnvironmentProblem(f"The file {str(path)!r} {why.rstrip('.')}. To write it again: `{command}`.")
