"""Which token stands in which slot of the key/value buffers, and how far they are filled.

Where every layer stores every token (`recompute`, `copy_below`) one table serves all layers; where skipping leaves
nothing behind, every layer has its own and rows differ in length.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class SlotTable:
    """Positions of the tokens in B rows of slots.

    Attributes:
        positions: [B, capacity] position of the token in each slot, -1 where the slot shows nothing.
        used: Slots in use, those of the longest row.
        lengths: [B] slots each row uses; known to the host.
        has_hidden: Some slot in use shows nothing.
    """

    def __init__(self, batch: int, device: torch.device, capacity: int = 0) -> None:
        self.positions = torch.full((batch, capacity), -1, dtype=torch.long, device=device)
        self.used = 0
        self.lengths = np.zeros(batch, dtype=np.int64)
        self.has_hidden = False

    def visible(self) -> Tensor:
        """[B, T] position per slot in use, -1 where nothing is visible."""
        return self.positions[:, : self.used]

    def append(self, positions: Tensor, *, has_hidden: bool) -> None:
        """Give every row S more slots for tokens at positions [B, S], -1 for those nobody shall see."""
        start, self.used = self.used, self.used + positions.shape[1]
        self._grow()
        self.positions[:, start : self.used] = positions
        self.lengths = np.full_like(self.lengths, self.used)
        self.has_hidden |= has_hidden

    def append_ragged(self, rows: np.ndarray, row_indices: Tensor, positions: Tensor) -> Tensor:
        """Give N tokens a slot each at the end of their row.

        Args:
            rows: [N] row of each token, ascending, known to the host.
            row_indices: The same on the device.
            positions: [N] in the sequence, ascending within a row.

        Returns:
            Slot [N] of each token.
        """
        added = np.bincount(rows, minlength=self.lengths.size)
        first = np.cumsum(added) - added
        slots = self.lengths[rows] + np.arange(rows.size) - first[rows]
        self.lengths = self.lengths + added
        self.used = int(self.lengths.max(initial=0))
        self.has_hidden = bool((self.lengths < self.used).any())
        self._grow()
        slot_indices = torch.from_numpy(slots).to(positions.device)
        self.positions[row_indices, slot_indices] = positions
        return slot_indices

    def select_rows(self, rows: Tensor, host_rows: np.ndarray) -> None:
        """Keep only the given batch rows."""
        self.positions, self.lengths = self.positions[rows], self.lengths[host_rows]

    def crop(self, length: int) -> None:
        """Forget the slots after the last one that shows a token before position `length`; for one row."""
        positions = self.visible()[0]
        seen = ((positions >= 0) & (positions < length)).nonzero()
        self.used = int(seen[-1]) + 1 if seen.numel() else 0
        self.positions[:, self.used :] = -1
        self.lengths = np.full_like(self.lengths, self.used)

    def room(self, capacity: int) -> int:
        """Slots to make room for when `capacity` are there and `used` are needed: doubling, so that growing is rare."""
        return capacity if self.used <= capacity else max(self.used, 2 * capacity)

    def _grow(self) -> None:
        batch, capacity = self.positions.shape
        more = self.room(capacity) - capacity
        if more:
            self.positions = torch.cat([self.positions, self.positions.new_full((batch, more), -1)], dim=1)
