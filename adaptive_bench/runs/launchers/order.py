"""What a launcher is given, and what it gives back."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from adaptive_bench import registry
from adaptive_bench.errors import ToBeContinued, UsageError, one_line
from adaptive_bench.progress import Reporter
from adaptive_bench.recipe import Strict
from adaptive_bench.runs.cost.estimate import Estimator
from adaptive_bench.runs.planning.cells import Cell
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.share import Share
from adaptive_bench.runs.workers.chains import Chain, Failure
from adaptive_bench.runs.workers.launch import chains_left
from adaptive_bench.runs.workers.overwrite import Overwrite, allowed
from adaptive_bench.strict_yaml import read_mapping

STOPPED = ToBeContinued.exit_code
Model = TypeVar("Model", bound=Strict)


@dataclass(frozen=True)
class Order:
    """What is to be done.

    Attributes:
        plan: The plan.
        share: The part of it that is to be done now.
        folder: Of the run, with its `config.yaml`.
        reporter: Told how it goes.
        estimator: Knows how long each part will take.
        jobs: Processes to use on one machine; `None` decides by the size of the backbone and the number of cores.
        resources: YAML file with what the launcher wants to know, if any.
        overwrite: What becomes of results that are on disk; those that are to be made anew are gone by now.
    """

    plan: Plan
    share: Share
    folder: Path
    reporter: Reporter
    estimator: Estimator
    jobs: int | None = None
    resources: Path | None = None
    overwrite: Overwrite = Overwrite.only_missing

    def chains(self) -> list[Chain]:
        """The work that is left and may be done."""
        return allowed(chains_left(self.plan, self.estimator, self.share), self.overwrite)[0]

    def cells_left(self) -> list[Cell]:
        """The cells with work left, each after the one it starts from."""
        wanted = {cell.folder for cell in self.share.of(self.plan)}
        cells = [chain.cell for chain in self.chains()]
        return sorted((cell for cell in cells if cell.folder in wanted), key=depth)

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
                f"{key!r} in {self.resources} is wrong: {first['msg'].removeprefix('Value error, ')}{got}. "
                f"Known: {', '.join(kind.model_fields)}."
            ) from (None if hidden else error)

    def command(self, *more: str, processes: int = 1, python: str = sys.executable) -> str:
        """This command, with other words at its end, fit for a shell.

        Args:
            processes: That do one cell together.
            python: The interpreter, where the command will be given.
        """
        start = [python, "-m"]
        if processes > 1:
            start += ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
        plugins = [part for path in registry.plugin_files() for part in ("--plugin", str(path))]
        words = [*start, "adaptive_bench", "run", "--config", str(self.folder.resolve() / "config.yaml"), *plugins]
        return shlex.join([*words, *more])


@dataclass(frozen=True)
class Launched:
    """What became of an order.

    Attributes:
        failures: Work that could not be done.
        submitted: Where the work goes on after this command, for the user; empty if it is over.
    """

    failures: Sequence[Failure] = ()
    submitted: str = ""


def depth(cell: Cell) -> int:
    """How many unfinished trainings must come before this one's."""
    return 0 if cell.base is None or cell.base.finished else 1 + depth(cell.base)
