"""A training batch whose rows are spread over several processes, as far as a method has to know of it."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Spread(Protocol):
    """Puts together what each process has."""

    def rows(self, own: Tensor) -> Tensor:
        """[N, ...] of each process, one after the other in the order of the batch; gradients reach the own ones."""

    def own(self, whole: Tensor, count: int) -> Tensor:
        """Of such rows the `count` that are this process's."""
