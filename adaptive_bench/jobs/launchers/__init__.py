"""Launchers decide where jobs are done. Each is a function from a `LaunchRequest` to a `LaunchResult`.

Another package adds a launcher with an entry point in the group `adaptive_bench.launchers`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from adaptive_bench import registry
from adaptive_bench.errors import ToBeContinued, UsageError
from adaptive_bench.jobs.job import Failure
from adaptive_bench.recipe import Strict
from adaptive_bench.validation import read_mapping, rule_of

__all__ = ["LaunchRequest", "LaunchResult", "PendingJob"]


STOPPED = ToBeContinued.exit_code
Model = TypeVar("Model", bound=Strict)


@dataclass(frozen=True)
class PendingJob:
    """A job that is left to do; the unit of work for one machine.

    Attributes:
        name: Name of its record, as `--cell` takes it.
        depth: Length of the chain of unfinished jobs that it builds on.
    """

    name: str
    depth: int


@dataclass(frozen=True)
class LaunchRequest:
    """The work that a launcher is asked to do.

    Attributes:
        folder: Folder of the run, with its `config.yaml`.
        pending: Gives the jobs that are left now, each after the jobs it builds on.
        run_here: Does the work in this command, and returns what could not be done.
        resources: YAML file with the launcher's settings, if any.
    """

    folder: Path
    pending: Callable[[], Sequence[PendingJob]]
    run_here: Callable[[], Sequence[Failure]]
    resources: Path | None = None

    def settings(self, kind: type[Model]) -> Model:
        """Return the launcher's settings as its own type; its defaults if no file is given.

        Raises:
            UsageError: A key or value is wrong.
            EnvironmentProblem: The file cannot be read.
        """
        try:
            return kind.model_validate(read_mapping(self.resources) if self.resources else {})
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or "the whole"
            raise UsageError(
                f"{key!r} in {self.resources} is wrong: {rule_of(first)}. Known: {', '.join(kind.model_fields)}."
            ) from error

    def command(self, *more: str, processes: int = 1, python: str = sys.executable) -> str:
        """Return the command of this run with further words at its end, quoted for a shell. It works in one process.

        Args:
            processes: Number of processes that do one job together.
            python: The interpreter on the machine that will run the command.
        """
        start = [python, "-m"]
        if processes > 1:
            # torchrun has an option `-m` of its own for the module that it starts.
            start += ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
        plugins = [part for path in registry.plugin_files() for part in ("--plugin", str(path))]
        words = [*start, "adaptive_bench", "run", "--config", str(self.folder.resolve() / "config.yaml"), *plugins]
        # Jobs may share a machine, and a command by itself takes as many processes as suit it.
        return shlex.join([*words, "--jobs", "1", *more])


@dataclass(frozen=True)
class LaunchResult:
    """The result of a request.

    Attributes:
        failures: Work that could not be done.
        submitted: A message for the user that says where the work continues; empty if it is over.
    """

    failures: Sequence[Failure] = ()
    submitted: str = ""


def local(request: LaunchRequest) -> LaunchResult:
    """Do the work in this command: the launcher `local`."""
    return LaunchResult(request.run_here())
