"""The buffers that hold one layer's keys and values."""

from __future__ import annotations

import torch
from torch import Tensor

from adaptive_bench.engine.slots import Move, SlotTable


class LayerStore:
    """One layer's K,V in buffers that grow by doubling.

    Attributes:
        table: Which token each slot holds; several layers may share it.
        keys, values: [B, kv heads, capacity, head size]; `None` before the first fill. Each keeps the dtype of its
            first fill: under autocast keys (turned by fp32 rotary tables) and values differ, and calls may as well.
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
        """The whole buffers, with room for the slots in use; new ones are like keys and values [*, kv heads, ..., head
        size].
        """
        if self.keys is None or self.values is None or self.keys.shape[2] < self.table.used:
            self.keys, self.values = self._grown(self.keys, keys), self._grown(self.values, values)
        return self.keys, self.values

    def fill(self, keys: Tensor, values: Tensor) -> None:
        """Fill the last S slots of every row: K,V [B, kv heads, S, head size]."""
        start = self.table.used - keys.shape[2]
        if start == 0 and self.table.positions.shape[1] == self.table.used:
            self.keys, self.values = keys, values  # nothing to append to: keep the tensors, which stay differentiable
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

    def reorder(self, order: Tensor) -> None:
        """Move slots [B, T] of every row to the front, in that order; the table has done so already."""
        if self.keys is None or self.values is None:
            return
        places = order[:, None, :, None]
        for buffer in (self.keys, self.values):
            buffer[:, :, : order.shape[1]] = buffer.gather(2, places.expand(-1, buffer.shape[1], -1, buffer.shape[3]))

    def join(self, other: LayerStore, mine: Move, theirs: Move) -> None:
        """Append the rows of another store; the table has done so already and says which slots moved where."""
        self.keys = self._joined(self.keys, other.keys, mine, theirs)
        self.values = self._joined(self.values, other.values, mine, theirs)

    def _joined(self, mine: Tensor | None, theirs: Tensor | None, my_move: Move, their_move: Move) -> Tensor | None:
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
        if self.table.used <= buffer.shape[2]:
            return buffer
        return torch.cat([buffer, buffer.new_zeros(*buffer.shape[:2], capacity - buffer.shape[2], like.shape[-1])], 2)
