"""Slots of the key/value buffers, and the kept tokens of a call.

If every layer stores every token (KV policies `recompute` and `copy_below`), one slot table serves all layers. If
skipped tokens are not stored, every layer has its own table and rows differ in length.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# Spare slots after rows were joined, so that the buffer need not grow again for the next tokens.
_SPARE = 32


class Move(NamedTuple):
    """The old and new slots of a table's rows when it was joined with another table."""

    rows: int
    old: slice
    new: slice


class SlotTable:
    """Positions of the tokens in B rows of slots.

    Attributes:
        positions: [B, capacity] position of the token in each slot, -1 for a hidden slot (no query may see it).
        used: Number of slots in use, that of the longest row.
        lengths: [B] number of slots that each row uses; known to the host.
        has_hidden: Some slot in use is hidden.
        holds_unseen: Some hidden slot lies within a row's own length, because a skipping token was given a slot.
    """

    def __init__(self, batch: int, device: torch.device, capacity: int = 0) -> None:
        self.positions = torch.full((batch, capacity), -1, dtype=torch.long, device=device)
        self.used = 0
        self.lengths = np.zeros(batch, dtype=np.int64)
        self.has_hidden = False
        self.holds_unseen = False

    def visible(self) -> Tensor:
        """[B, T] position per slot in use, -1 for hidden slots."""
        return self.positions[:, : self.used]

    def append(self, positions: Tensor, *, has_hidden: bool) -> None:
        """Give every row S more slots for tokens at positions [B, S], -1 for hidden ones."""
        start, self.used = self.used, self.used + positions.shape[1]
        self._grow()
        self.positions[:, start : self.used] = positions
        self.lengths = np.full_like(self.lengths, self.used)
        self.has_hidden |= has_hidden

    def append_ragged(self, rows: np.ndarray, row_indices: Tensor, positions: Tensor) -> Tensor:
        """Give each of N tokens a slot at the end of its row; returns the slots [N].

        Args:
            rows: [N] row of each token, ascending, on the host.
            row_indices: The same rows on the device.
            positions: [N] position of each token in its sequence, ascending within a row.
        """
        added = np.bincount(rows, minlength=self.lengths.size)
        first = np.cumsum(added) - added
        # The n-th new token of a row goes n slots behind the row's end; `first` is where its row begins among the N.
        slots = self.lengths[rows] + np.arange(rows.size) - first[rows]
        # A new array: copies of this table share the old one.
        self.lengths = self.lengths + added
        self.used = int(self.lengths.max(initial=0))
        # A row that is shorter than the longest has unused slots at its end, which no query may see.
        self.has_hidden = self.holds_unseen or bool((self.lengths < self.used).any())
        self._grow()
        slot_indices = torch.from_numpy(slots).to(positions.device)
        self.positions[row_indices, slot_indices] = positions
        return slot_indices

    def select_rows(self, rows: Tensor, host_rows: np.ndarray) -> None:
        """Keep only the given batch rows."""
        self.positions, self.lengths = self.positions[rows], self.lengths[host_rows]

    def copy(self) -> SlotTable:
        """A copy of the table; the two share tensors until one of them selects rows."""
        return copy(self)

    def join(self, other: SlotTable, *, ragged: bool) -> tuple[Move, Move]:
        """Append the rows of another table; returns the moves of this table's slots and of the other's.

        If rows are `ragged`, each has its own end (`append_ragged`). Otherwise all end in the same slot, and leading
        slots that are hidden in all rows are dropped.
        """
        starts = (0, 0) if ragged else (self._hidden_start(), other._hidden_start())
        widths = (self.used - starts[0], other.used - starts[1])
        used = max(widths)
        moves = []
        for table, start, width in zip((self, other), starts, widths, strict=True):
            # Ragged rows begin at slot 0; the others are shifted right, as all must end in the last used slot.
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
        """The number of leading slots that are hidden in all rows."""
        shown = (self.visible() >= 0).any(dim=0).nonzero()
        return int(shown[0]) if shown.numel() else self.used

    def crop(self, lengths: Tensor, *, ragged: bool) -> None:
        """Forget the tokens at positions `lengths` [B] and later, and free the slots after the last visible one.

        Unless rows are `ragged`, a slot that is visible in one row stays in use, and is hidden in the others.
        """
        kept = (self.visible() >= 0) & (self.visible() < lengths[:, None])
        # One past each row's last kept slot; `amax` refuses an empty table.
        ends = (kept * torch.arange(1, self.used + 1, device=kept.device)).amax(dim=1) if self.used else lengths * 0
        host_ends = ends.cpu().numpy()
        positions = torch.full_like(self.positions, -1)  # a copy of this table may share the old one
        positions[:, : self.used] = self.visible().masked_fill(~kept, -1)
        self.positions, self.used = positions, int(host_ends.max(initial=0))
        self.lengths = host_ends if ragged else np.full_like(self.lengths, self.used)
        self.has_hidden = bool((self.visible() < 0).any())

    def _grow(self) -> None:
        """Make room for the slots in use: at least twice the old capacity, so that growing is rare."""
        batch, capacity = self.positions.shape
        if self.used > capacity:
            more = max(self.used, 2 * capacity) - capacity
            self.positions = torch.cat([self.positions, self.positions.new_full((batch, more), -1)], dim=1)


class LayerStore:
    """One layer's K,V in buffers that grow by doubling.

    Attributes:
        table: The token in each slot; several layers may share one table.
        keys, values: [B, kv heads, capacity, head size]; `None` before the first fill. Each keeps the dtype of its
            first fill: under autocast, keys (turned by fp32 rotary tables) and values differ, and calls may differ too.
    """

    def __init__(self, table: SlotTable) -> None:
        self.table = table
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def view(self) -> tuple[Tensor, Tensor]:
        """K and V of the slots in use, [B, kv heads, T, head size]."""
        assert self.keys is not None and self.values is not None
        return self.keys.narrow(2, 0, self.table.used), self.values.narrow(2, 0, self.table.used)

    def buffers(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The whole buffers, grown to hold the slots in use. New buffers take heads, head size and dtype from keys and
        values [*, kv heads, ..., head size].
        """
        if self.keys is None or self.values is None or self.keys.shape[2] < self.table.used:
            self.keys, self.values = self._grown(self.keys, keys), self._grown(self.values, values)
        return self.keys, self.values

    def fill(self, keys: Tensor, values: Tensor) -> None:
        """Fill the last S slots of every row: K,V [B, kv heads, S, head size]."""
        # The table was extended before, so the new slots are its last ones.
        start = self.table.used - keys.shape[2]
        if start == 0 and self.table.positions.shape[1] == self.table.used:
            self.keys, self.values = keys, values  # nothing to append to: keep these tensors, so gradients pass through
            return
        key_buffer, value_buffer = self.buffers(keys, values)
        key_buffer[:, :, start : self.table.used] = keys
        value_buffer[:, :, start : self.table.used] = values

    def fill_at(self, rows: Tensor, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Fill the slots [N] of rows [N]: K,V [N, kv heads, head size]."""
        key_buffer, value_buffer = self.buffers(keys, values)
        key_buffer[rows, :, slots] = keys.to(key_buffer.dtype)
        value_buffer[rows, :, slots] = values.to(value_buffer.dtype)

    def select_rows(self, rows: Tensor) -> None:
        """Keep only the given batch rows."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]

    def join(self, other: LayerStore, mine: Move, theirs: Move) -> None:
        """Append the rows of another store. The tables were joined before; `mine` and `theirs` are their moves."""
        self.keys = self._joined(self.keys, other.keys, mine, theirs)
        self.values = self._joined(self.values, other.values, mine, theirs)

    def _joined(self, mine: Tensor | None, theirs: Tensor | None, my_move: Move, their_move: Move) -> Tensor | None:
        # Either side may lack a layer in which no token has stored anything so far.
        like = theirs if mine is None else mine
        if like is None:
            return None
        batch, capacity = self.table.positions.shape
        joined = like.new_zeros(batch, like.shape[1], capacity, like.shape[-1])
        if mine is not None:
            joined[: my_move.rows, :, my_move.new] = mine[:, :, my_move.old]
        if theirs is not None:
            joined[my_move.rows :, :, their_move.new] = theirs[:, :, their_move.old].to(joined.dtype)
        return joined

    def _grown(self, buffer: Tensor | None, like: Tensor) -> Tensor:
        batch, capacity = self.table.positions.shape
        if buffer is None:
            return like.new_zeros(batch, like.shape[1], capacity, like.shape[-1])
        return torch.cat([buffer, buffer.new_zeros(*buffer.shape[:2], capacity - buffer.shape[2], like.shape[-1])], 2)


@dataclass
class Kept:
    """The kept tokens among the B x S tokens of a call.

    Attributes:
        mask: [B, S] the kept tokens, on the host.
        count: Their number N.
        valid: [B, S] real tokens, on the host.
        device: The device for indices.
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
        """Flat indices [N] of the kept tokens, ascending, on the host."""
        return np.flatnonzero(self.mask)

    @cached_property
    def tokens(self) -> Tensor:
        """Flat indices [N] of the kept tokens, ascending, that is in (row, position) order."""
        return self._put(self.host_tokens)

    @cached_property
    def skipped(self) -> Tensor:
        """Flat indices [M] of the real tokens that are not kept, ascending."""
        return self._put(self.host_skipped)

    @cached_property
    def host_skipped(self) -> np.ndarray:
        """The same indices as `skipped`, on the host."""
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
        """The largest number of kept tokens in one row."""
        return int(self.mask.sum(axis=1).max(initial=0))

    @cached_property
    def rectangle(self) -> Tensor:
        """[R, width] flat indices: every row's kept tokens first, ascending, then other tokens as filling."""
        # `~mask` sorts kept tokens first, and stable sorting leaves them in order of their positions.
        order = np.argsort(~self.mask[self.host_rows], axis=1, kind="stable")[:, : self.width]
        return self._put(order + self.host_rows[:, None] * self.mask.shape[1])

    @cached_property
    def filled(self) -> Tensor:
        """[N] flat indices of the kept tokens within the rectangle."""
        counts = self.mask[self.host_rows].sum(axis=1)
        # Kept tokens stand first in each row of the rectangle, so the first `counts` places hold them.
        return self._put(np.flatnonzero(np.arange(self.width) < counts[:, None]))

    @cached_property
    def read(self) -> Tensor:
        """Flat indices of the rectangle's tokens, row by row, then of the real tokens that are not kept."""
        return torch.cat([self.rectangle.flatten(), self.skipped])

    @property
    def covers(self) -> bool:
        """Whether kept and skipped tokens cover the call, so that it has no padding."""
        return self.count + self.host_skipped.size == self.mask.size

    def _put(self, indices: np.ndarray) -> Tensor:
        return torch.from_numpy(indices).to(self.device)
