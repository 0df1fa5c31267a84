"""Which tokens of a call execute a branch, as indices ready for gathering.

Made on the host from a mask that was read once: shapes are then known without waiting for a device again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


@dataclass
class Kept:
    """Some of the B x S tokens of a call.

    Attributes:
        mask: [B, S] the tokens, known to the host.
        count: How many they are, N.
        valid: [B, S] real tokens, likewise.
        device: Where indices are needed.
    """

    mask: np.ndarray
    count: int
    valid: np.ndarray
    device: torch.device

    @classmethod
    def everything(cls, batch: int, length: int, device: torch.device) -> Kept:
        """All tokens."""
        mask = np.ones((batch, length), dtype=bool)
        return cls(mask, mask.size, mask, device)

    @cached_property
    def host_tokens(self) -> np.ndarray:
        """Flat indices [N], ascending, on the host."""
        return np.flatnonzero(self.mask)

    @cached_property
    def tokens(self) -> Tensor:
        """Flat indices [N], ascending: (row, position) order."""
        return self._put(self.host_tokens)

    @cached_property
    def skipped(self) -> Tensor:
        """Flat indices [M] of the real tokens that are not kept, ascending."""
        return self._put(self.host_skipped)

    @cached_property
    def host_skipped(self) -> np.ndarray:
        """The same on the host."""
        return np.flatnonzero(self.valid & ~self.mask)

    @cached_property
    def host_rows(self) -> np.ndarray:
        """Rows [R] with a kept token, on the host."""
        return np.flatnonzero(self.mask.any(axis=1))

    @cached_property
    def rows(self) -> Tensor | None:
        """Rows [R] with a kept token; `None` for all."""
        return None if self.host_rows.size == len(self.mask) else self._put(self.host_rows)

    @cached_property
    def width(self) -> int:
        """Kept tokens of the row that has most."""
        return int(self.mask.sum(axis=1).max(initial=0))

    @cached_property
    def rectangle(self) -> Tensor:
        """[R, width] flat indices: every row's kept tokens first, ascending, then others that only fill up."""
        order = np.argsort(~self.mask[self.host_rows], axis=1, kind="stable")[:, : self.width]
        return self._put(order + self.host_rows[:, None] * self.mask.shape[1])

    @cached_property
    def filled(self) -> Tensor:
        """[N] flat indices into the rectangle: where the kept tokens are."""
        counts = self.mask[self.host_rows].sum(axis=1)
        return self._put(np.flatnonzero(np.arange(self.width) < counts[:, None]))

    @cached_property
    def read(self) -> Tensor:
        """Flat indices of the rectangle, row by row, then of the real tokens that are not kept."""
        return torch.cat([self.rectangle.flatten(), self.skipped])

    @property
    def covers(self) -> bool:
        """No token of the call is padding."""
        return self.count + self.host_skipped.size == self.mask.size

    def _put(self, indices: np.ndarray) -> Tensor:
        return torch.from_numpy(indices).to(self.device)
