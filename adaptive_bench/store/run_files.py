"""The files that a run writes into its own folder, what they say, and the command that writes them again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of
from adaptive_bench.store.shelves import DEFAULT_OUT, out_option
from adaptive_bench.strict_yaml import read_mapping

KEY_DIGITS = 8  # hexadecimal ones of a run's key, at the end of its name
ENTRY = "points.parquet"  # of a run that is passed on, whose table is computed from it
ENDED = ("table.json", "run.json")  # a run that has ended leaves both: where one is alone, the other was lost
# A run begins with the first two and ends with the third: any of them is left where another was lost.
BEGUN = ("config.yaml", "manifest.json", "run.json")
TABLES = ("table.json", "run.json", "answers.json", "methods.json")  # made of the records


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
        about = json.loads((folder / "command.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
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
