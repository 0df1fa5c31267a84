"""Options that were called otherwise, or meant something else: an old spelling is refused, with the new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from adaptive_bench.errors import UsageError
from adaptive_bench.store.runs import run_folders
from adaptive_bench.store.shelves import DEFAULT_OUT

# By command, without the name of the program, what stands for an option now.
FORMER: Mapping[str, Mapping[str, str]] = {
    "run": {"--match-on": "--axis", "--match-phase": "--phase"},
    "export": {"--write": "-o", "--to": "--format"},
    "rates": {"--write": "-o"},
    "steps": {"--write": "-o"},
    "samples": {"--saving": "--level"},
    "new-method": {"--out": "-o"},
    "leaderboard submit": {"--to": "-o"},
}


def refuse_former(command: str, args: Sequence[str]) -> None:
    """Refuse an option by a name that it no longer has.

    Args:
        command: As a key of `FORMER`.
        args: What was given to it.

    Raises:
        UsageError: One of them is such an option; the message has the new name.
    """
    names = FORMER.get(command, {})
    for arg in args:
        if arg == "--":
            return
        option = arg.partition("=")[0]
        if option in names:
            raise UsageError(
                f"{option} of `{command}` is called {names[option]} now, with the same value, got {option}."
            )


def check_runs_folder(out: Path, target: str) -> None:
    """Refuse an `--out` that holds no runs, of a command whose `--out` was once where it wrote to.

    Args:
        target: What the command writes, as in `site`.

    Raises:
        UsageError: Another folder than the default one was given, and no run is there.
    """
    if out != DEFAULT_OUT and not run_folders(out):
        raise UsageError(
            f"--out is the folder of the runs in every command, and -o (--output) what is written, got --out "
            f"{str(out)!r}, where no runs are. For the {target} give -o {out}."
        )
