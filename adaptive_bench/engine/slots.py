"""Which token stands in which slot of the key/value buffers, and how far they are filled.

Where every layer stores every token (`recompute`, `copy_below`) one table serves all layers; where skipping leaves
nothing behind, every layer has its own and rows differ in length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# Spare slots after rows were joined, so that the next tokens need no larger buffer at once.
_SPARE = 32


class Move(NamedTuple):
    """Where the slots of a table's rows went when it was joined with another."""

    rows: int
    old: slice
    new: slice


class SlotTable:
    """Positions of the tokens in B rows of slots.

    Attributes:
        positions: [B, capacity] position of the token in each slot, -1 where the slot shows nothing.
        used: Slots in use, those of the longest row.
        lengths: [B] slots each row uses; known to the host.
        has_hidden: Some slot in use shows nothing.
        holds_unseen: So does one that a row itself uses: a token that skipped got it all the same.
    """

    def __init__(self, batch: int, device: torch.device, capacity: int = 0) -> None:
        self.positions = torch.full((batch, capacity), -1, dtype=torch.long, device=device)
        self.used = 0
        self.lengths = np.zeros(batch, dtype=np.int64)
        self.has_hidden = False
        self.holds_unseen = False

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
        self.has_hidden = self.holds_unseen or bool((self.lengths < self.used).any())
        self._grow()
        slot_indices = torch.from_numpy(slots).to(positions.device)
        self.positions[row_indices, slot_indices] = positions
        return slot_indices

    def select_rows(self, rows: Tensor, host_rows: np.ndarray) -> None:
        """Keep only the given batch rows."""
        self.positions, self.lengths = self.positions[rows], self.lengths[host_rows]

    def copy(self) -> SlotTable:
        """The same slots; tensors are shared until one of the two selects rows."""
        other = SlotTable(0, self.positions.device)
        other.positions, other.used, other.has_hidden = self.positions, self.used, self.has_hidden
        other.lengths, other.holds_unseen = self.lengths, self.holds_unseen
        return other

    def join(self, other: SlotTable, *, ragged: bool) -> tuple[Move, Move]:
        """Append the rows of another table. Leading slots that no row shows are dropped.

        Args:
            ragged: Rows end where they end (`append_ragged`); else all end in the same slot.

        Returns:
            What became of this table's slots and of the other's.
        """
        starts = (0, 0) if ragged else (self._hidden_start(), other._hidden_start())
        widths = (self.used - starts[0], other.used - starts[1])
        used = max(widths)
        moves = []
        for table, start, width in zip((self, other), starts, widths, strict=True):
            new = slice(0, width) if ragged else slice(used - width, used)
            moves.append(Move(len(table.lengths), slice(start, table.used), new))
        mine, theirs = moves
        positions = self.positions.new_full((mine.rows + theirs.rows, used + _SPARE), -1)
        positions[: mine.rows, mine.new] = self.positions[:, mine.old]
        positions[mine.rows :, theirs.new] = other.positions[:, theirs.old]
        self.positions, self.used = positions, used
        self.lengths = np.concatenate([self.lengths, other.lengths])
        if not ragged:
            self.lengths = np.full_like(self.lengths, used)
        self.has_hidden = bool((self.visible() < 0).any())
        self.holds_unseen |= other.holds_unseen
        return mine, theirs

    def _hidden_start(self) -> int:
        """Leading slots in use that no row shows."""
        shown = (self.visible() >= 0).any(dim=0).nonzero()
        return int(shown[0]) if shown.numel() else self.used

    def crop(self, lengths: Tensor, *, ragged: bool) -> None:
        """Forget the tokens at positions `lengths` [B] and later; slots after the last that some row shows are free.

        Args:
            ragged: Rows end where they end (`append_ragged`); else a slot that one row still shows stays in use, and
                shows nothing in the others.
        """
        kept = (self.visible() >= 0) & (self.visible() < lengths[:, None])
        ends = (kept * torch.arange(1, self.used + 1, device=kept.device)).amax(dim=1) if self.used else lengths * 0
        host_ends = ends.cpu().numpy()
        positions = torch.full_like(self.positions, -1)  # a copy of this table may share the old one
        positions[:, : self.used] = self.visible().masked_fill(~kept, -1)
        self.positions, self.used = positions, int(host_ends.max(initial=0))
        self.lengths = host_ends if ragged else np.full_like(self.lengths, self.used)
        self.has_hidden = bool((self.visible() < 0).any())

    def closed_up(self) -> Tensor | None:
        """Where slots that show nothing are as many as the longest row needs: an order [B, T] of the slots in use in
        which every row's tokens stand together at the end, T being the longest row's. The table has taken it.
        """
        seen = self.visible() >= 0
        longest = int(seen.sum(dim=1).max()) if self.used else 0
        if not longest or self.used < 2 * longest:
            return None
        order = seen.int().argsort(dim=1, stable=True)[:, self.used - longest :]
        positions = torch.full_like(self.positions, -1)
        positions[:, :longest] = self.visible().gather(1, order)
        self.positions, self.used = positions, longest
        self.lengths = np.full_like(self.lengths, longest)
        self.has_hidden = bool((self.visible() < 0).any())
        return order

    def room(self, capacity: int) -> int:
        """Slots to make room for when `capacity` are there and `used` are needed: doubling, so that growing is rare."""
        return capacity if self.used <= capacity else max(self.used, 2 * capacity)

    def _grow(self) -> None:
        batch, capacity = self.positions.shape
        more = self.room(capacity) - capacity
        if more:
            self.positions = torch.cat([self.positions, self.positions.new_full((batch, more), -1)], dim=1)
