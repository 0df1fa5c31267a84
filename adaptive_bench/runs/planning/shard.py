"""Which cells of a plan one command does: all of them, one part of several, or those that are named."""

from __future__ import annotations

import re
from dataclasses import dataclass

from adaptive_bench.errors import UsageError, one_line
from adaptive_bench.registry import did_you_mean
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.works import TrainingRun
from adaptive_bench.validation import each_once, parts_of

_FORM = re.compile(r"([1-9]\d*)/([1-9]\d*)")


@dataclass(frozen=True)
class Shard:
    """A part of a plan. A cell belongs to it with all its evaluations.

    The plan's order decides, so that several commands with the same config divide it in the same way without talking to
    each other. A training that one of the cells starts from may belong to another part: the command that needs it first
    trains it, the others wait for the result.

    Attributes:
        number, parts: `2/8` has every eighth cell, from the second on.
        cells: Names of records; if any are given, those cells alone.
    """

    number: int = 1
    parts: int = 1
    cells: tuple[str, ...] = ()

    @classmethod
    def parse(cls, shard: str | None, cells: str | None) -> Shard:
        """From `2/8`, or names of records with commas between them.

        Raises:
            UsageError: Neither form, or both.
        """
        if shard is not None and cells is not None:
            raise UsageError("A command does a shard or named cells, got --shard and --cell. Leave one of them out.")
        if cells is not None:
            try:
                named = each_once(parts_of(cells))
            except ValueError as error:
                raise UsageError(f"--cell is wrong: {error}, got {one_line(cells, 100)}.") from None
            if not named:  # no cells at all would stand for every cell
                raise UsageError(f"--cell names at least one cell, got {cells!r}. Give one, or leave it out.")
            return cls(cells=named)
        if shard is None:
            return cls()
        found = _FORM.fullmatch(shard.strip())
        if found is None or int(found[1]) > int(found[2]):
            raise UsageError(f"A shard is a part of several, such as --shard 2/8 (1/8 to 8/8), got {shard!r}.")
        return cls(int(found[1]), int(found[2]))

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole plan."""
        return self.parts == 1 and not self.cells

    def of(self, plan: Plan) -> tuple[TrainingRun, ...]:
        """Its cells, in the order of the plan.

        Raises:
            UsageError: A named cell is not in the plan.
        """
        if not self.cells:
            return plan.trainings[self.number - 1 :: self.parts]
        known = {cell.folder.name: cell for cell in plan.trainings}
        for name in self.cells:
            if name not in known:
                raise UsageError(
                    f"A cell is named like its record, but the plan has none {name!r}: the name is wrong, or code, "
                    f"data or recipe have changed since it was planned. {did_you_mean(name, known)}"
                )
        return tuple(cell for name, cell in known.items() if name in self.cells)


WHOLE = Shard()
