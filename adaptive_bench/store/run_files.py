"""The files that a run writes into its own folder, what they say, and the command that writes them again."""

from __future__ import annotations

import errno
import json
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of
from adaptive_bench.store.keys import run_key
from adaptive_bench.store.shelves import DEFAULT_OUT, is_lost, out_option
from adaptive_bench.strict_yaml import read_mapping

KEY_DIGITS = 8  # hexadecimal ones of a run's key, at the end of its name
ENTRY = "points.parquet"  # of a run that is passed on, whose table is computed from it
ENDED = ("table.json", "run.json")  # a run that has ended leaves both: where one is alone, the other was lost
# A run begins with the first two and ends with the third: any of them is left where another was lost.
BEGUN = ("config.yaml", "manifest.json", "run.json")
# What a run writes into its folder by itself.
OWN_FILES = frozenset(
    {*BEGUN, "command.json", "table.json", "answers.json", "methods.json", "leaderboard.md", "data_card.md"}
    | {"remembered.json", "remembered.jsonl"}  # of earlier versions
)


def is_entry(folder: Path) -> bool:
    """Whether a folder is a run that is passed on: its measurements alone."""
    return (folder / ENTRY).is_file()


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
    """Refuse an entry where what lies beside a run is needed.

    Raises:
        UsageError: With what can be had of it.
    """
    if is_entry(folder):
        quoted = shlex.quote(str(folder))
        raise UsageError(
            f"A run has its records beside it, but {str(folder)!r} is an entry of a board. `adaptive-bench leaderboard "
            f"verify {quoted}` prints its table, `adaptive-bench leaderboard build {quoted}` makes its board, and "
            f"`adaptive-bench run --config {quoted}/config.yaml` is the run again."
        )


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, one that lost its `config.yaml` included."""
    return any((folder / name).is_file() for name in BEGUN)


def has_ended(folder: Path) -> bool:
    """Whether a folder has the table of a run, or what says how the run ended."""
    return any((folder / name).is_file() for name in ENDED)


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
