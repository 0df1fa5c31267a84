"""Launchers: where jobs are done. Each is a function from a `LaunchRequest` to what became of it.

Another package adds one with an entry point in the group `adaptive_bench.launchers`.
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
from adaptive_bench.errors import ToBeContinued, UsageError, one_line
from adaptive_bench.jobs.job import Failure
from adaptive_bench.recipe import Strict
from adaptive_bench.strict_yaml import read_mapping
from adaptive_bench.validation import rule_of

__all__ = ["LaunchRequest", "LaunchResult", "PendingJob"]


STOPPED = ToBeContinued.exit_code
Model = TypeVar("Model", bound=Strict)


@dataclass(frozen=True)
class PendingJob:
    """Work that one machine does at a time.

    Attributes:
        name: Of its record; what `--cell` takes.
        depth: How many unfinished jobs it builds on, one upon the other.
    """

    name: str
    depth: int


@dataclass(frozen=True)
class LaunchRequest:
    """What is to be done.

    Attributes:
        folder: Of the run, with its `config.yaml`.
        pending: Gives what is left by now, each after what it builds on.
        run_here: Does it in this command; gives back what could not be done.
        resources: YAML file with what the launcher wants to know, if any.
    """

    folder: Path
    pending: Callable[[], Sequence[PendingJob]]
    run_here: Callable[[], Sequence[Failure]]
    resources: Path | None = None

    def settings(self, kind: type[Model]) -> Model:
        """The resources as the launcher's own type; its defaults where no file is given.

        Raises:
            UsageError: A key or value is wrong.
            EnvironmentProblem: The file cannot be read.
        """
        try:
            return kind.model_validate(read_mapping(self.resources) if self.resources else {})
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or "the whole"
            # What somebody took for the place of a password is not repeated.
            hidden = not first["loc"] or first["loc"][0] == "secrets"
            got = "" if hidden else f", got {one_line(repr(first['input']), 60)}"
            raise UsageError(
                f"{key!r} in {self.resources} is wrong: {rule_of(first)}{got}. Known: {', '.join(kind.model_fields)}."
            ) from (None if hidden else error)

    def command(self, *more: str, processes: int = 1, python: str = sys.executable) -> str:
        """This command, with other words at its end, fit for a shell.

        Args:
            processes: That do one job together.
            python: The interpreter, where the command will be given.
        """
        start = [python, "-m"]
        if processes > 1:
            start += ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
        plugins = [part for path in registry.plugin_files() for part in ("--plugin", str(path))]
        words = [*start, "adaptive_bench", "run", "--config", str(self.folder.resolve() / "config.yaml"), *plugins]
        return shlex.join([*words, *more])


@dataclass(frozen=True)
class LaunchResult:
    """What became of a request.

    Attributes:
        failures: Work that could not be done.
        submitted: Where the work goes on after this command, for the user; empty if it is over.
    """

    failures: Sequence[Failure] = ()
    submitted: str = ""
