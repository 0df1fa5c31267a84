"""Where a method decides: names of branches and sites."""

from __future__ import annotations

from typing import Literal, NamedTuple

Branch = Literal["attention", "mlp", "layer"]


class Site(NamedTuple):
    """A place where a method decides: one branch of one layer, or the whole layer."""

    layer: int
    branch: Branch

    @property
    def number(self) -> int:
        """0 .. 2L-1 in execution order; a whole layer has the index of its attention."""
        return 2 * self.layer + (self.branch == "mlp")
