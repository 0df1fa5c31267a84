"""A cache whose decode steps always write to the same tensors, so that a recorded step can be replayed.

Buffers have their full length from the start and never move. Every row has its own end: its next slot is a number on
the device, K,V and positions are written there by index, and later slots are hidden by the mask instead of being cut
off. The batch's rows are the first rows of the buffers. A step attends to the first `reach` slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.engine.ledger import Ledger
from adaptive_bench.engine.slots import Kept, LayerStore, SlotTable
from adaptive_bench.errors import UsageError
from adaptive_bench.method import KVPolicy, Session


class _StaticTable(SlotTable):
    """Slots of R rows, of which the first `batch` are in use.

    Attributes:
        next_slot: [R] the slot of each row's next token.
    """

    def __init__(self, rows: int, device: torch.device, capacity: int) -> None:
        super().__init__(rows, device, capacity)
        self.next_slot = torch.zeros(rows, dtype=torch.long, device=device)
        self.batch = 0
        self.has_hidden = True

    def visible(self) -> Tensor:
        return self.positions[: self.batch, : self.used]

    def take_rows(self, new: slice, other: SlotTable | None) -> None:
        """Copy the slots of another table into the rows `new`; empty them if there is no other table."""
        self.positions[new] = -1
        self.next_slot[new] = 0
        if other is not None:
            self.positions[new, : other.used] = other.visible()
            self.next_slot[new] = torch.from_numpy(other.lengths).to(self.next_slot.device)

    def keep_rows(self, rows: Tensor) -> None:
        """Move some rows [N] to the front."""
        count = rows.numel()
        self.positions[:count], self.next_slot[:count] = self.positions[rows], self.next_slot[rows]


class _StaticStore(LayerStore):
    """One layer's K,V, [R, kv heads, capacity, head size]."""

    table: _StaticTable

    def view(self) -> tuple[Tensor, Tensor]:
        assert self.keys is not None and self.values is not None
        batch, reach = self.table.batch, self.table.used
        return self.keys[:batch, :, :reach], self.values[:batch, :, :reach]

    def take_rows(self, new: slice, other: LayerStore | None) -> None:
        """Copy the K,V of another store into the rows `new`."""
        if other is not None and other.keys is not None:
            for mine, theirs in zip(self.buffers(*other.view()), other.view(), strict=True):
                mine[new, :, : theirs.shape[2]] = theirs.to(mine.dtype)

    def keep_rows(self, rows: Tensor) -> None:
        """Move some rows [N] to the front."""
        if self.keys is not None:
            for stored in self.view():
                stored[: rows.numel()] = stored[rows]


class StaticCache(AdaptiveCache):
    """K,V of up to R rows and `capacity` slots. Texts enter through `join` after their prompt was read.

    Args:
        rows: The largest number of rows, R.
        capacity: The largest number of slots that a row needs.

    Attributes:
        ledger: The ledger in which steps are noted.
        host_slots: [B] the next slot of each row in the layer where it is largest; known to the host.
    """

    static = True

    def __init__(self, rows: int, device: torch.device, policy: KVPolicy, capacity: int, ledger: Ledger) -> None:
        super().__init__(rows, device, policy, ragged=True, capacity=capacity)
        self.rows, self.ledger, self.reach = rows, ledger, 0
        self._shared: _StaticTable = _StaticTable(rows, device, capacity)
        self.stores: dict[int, _StaticStore] = {}  # type: ignore[assignment]
        self._everybody = torch.arange(rows, device=device)
        self._written: tuple[Tensor, Tensor] | None = None
        empty = Session.start(rows, device)
        self._buffers = {
            name: getattr(empty, name).clone() for name in ("lengths", "hash_sum", "hash_power", "documents")
        }
        self._state: dict[str, Tensor] = {}  # never moved or replaced, because a recorded step writes there
        self._state_names: set[str] = set()
        self.clear()

    def clear(self) -> None:
        """Forget every row."""
        self.host_slots = np.zeros(0, dtype=np.int64)
        self._host_lengths = np.zeros(0, dtype=np.int64)
        self._resize(0)

    def join(self, other: AdaptiveCache) -> None:
        """Append the rows of an ordinary cache of the same model."""
        start, end = self.batch, self.batch + other.batch
        stores = other.stores
        longest = max((store.table.used for store in stores.values()), default=0)
        if other.policy != self.policy or end > self.rows or longest > self.capacity:
            raise UsageError(
                f"A static cache holds {self.rows} rows of {self.capacity} slots under the KV policy {self.policy}, "
                f"got {end} rows of {longest} under {other.policy}. Make StaticSteps for as many."
            )
        new = slice(start, end)
        for layer in sorted({*self.stores, *stores}):
            mine, theirs = self.store(layer), stores.get(layer)
            mine.table.take_rows(new, None if theirs is None else theirs.table)
            mine.take_rows(new, theirs)
        session = other.session.copy()
        for name, buffer in self._buffers.items():
            buffer[new] = getattr(session, name)
        if not start:
            self._state_names = set(session.state)
        for name in self._state_names:
            value = session.state[name]
            if name not in self._state:
                self._state[name] = value.new_zeros(self.rows, *value.shape[1:])
            self._state[name][new] = value
        slots = [store.table.lengths for store in stores.values()] or [np.zeros(other.batch, dtype=np.int64)]
        self.host_slots = np.concatenate([self.host_slots, np.max(slots, axis=0)])
        self._host_lengths = np.concatenate([self._host_lengths, session.host_lengths])
        self._resize(end)

    def select_rows(self, rows: Tensor, host_rows: np.ndarray | None = None) -> None:
        """Keep only the given batch rows [N], in that order, each at most once."""
        host_rows = rows.cpu().numpy() if host_rows is None else host_rows
        for table in {id(table): table for table in self._static_tables()}.values():
            table.keep_rows(rows)
        for store in self.stores.values():
            store.keep_rows(rows)
        for buffer in (*self._buffers.values(), *self._state.values()):
            buffer[: rows.numel()] = buffer[rows]
        self.host_slots, self._host_lengths = self.host_slots[host_rows], self._host_lengths[host_rows]
        self._resize(rows.numel())

    def begin_step(self, reach: int) -> None:
        """Begin a step that attends to the first `reach` slots."""
        self.reach = reach
        self._resize(self.batch)

    def end_step(self) -> None:
        """Keep on the device what the next step needs from this one; `count_step` does the same on the host."""
        session, batch = self.session.copy(), self.batch
        for name, buffer in self._buffers.items():
            buffer[:batch] = getattr(session, name)
        for name, value in session.state.items():
            known = self._state.get(name)
            if known is None or name not in self._state_names or known.shape[1:] != value.shape[1:]:
                raise UsageError(
                    f"A step can be repeated only if a method's session state keeps its names and shapes, got {name!r} "
                    f"of shape {tuple(value.shape)} in a decode step. Set repeatable to False in the method's class."
                )
            known[:batch] = value
        for table in {id(table): table for table in self._static_tables()}.values():
            table.next_slot[:batch] += 1

    def count_step(self) -> None:
        """Count a finished step on the host."""
        self.host_slots, self._host_lengths = self.host_slots + 1, self._host_lengths + 1
        self._resize(self.batch)

    def _resize(self, batch: int) -> None:
        """Set the number of rows in use, and the session with which the next step begins."""
        self.batch = batch
        for table in self._static_tables():
            table.batch, table.used = batch, self.reach
        state = {name: self._state[name][:batch] for name in self._state_names}
        parts = {name: buffer[:batch] for name, buffer in self._buffers.items()}
        self.session = Session(**parts, host_lengths=self._host_lengths, state=state)

    def _static_tables(self) -> list[_StaticTable]:
        return [store.table for store in self.stores.values()] if self.leaves_nothing else [self._shared]

    def store(self, layer: int) -> _StaticStore:
        if layer not in self.stores:
            table = self._shared
            if self.leaves_nothing:
                table = _StaticTable(self.rows, self.device, self.capacity)
                table.batch, table.used = self.batch, self.reach
            self.stores[layer] = _StaticStore(table)
        return self.stores[layer]

    def begin(self, positions: Tensor, valid: Tensor, *, padded: bool) -> None:
        if not self.leaves_nothing:
            self._show(self._shared, positions)

    def write_step(self, layer: int, positions: Tensor, kept: Kept | None, keys: Tensor, values: Tensor) -> LayerStore:
        """Store K,V [B, kv heads, head size] of all rows, whichever rows executed."""
        assert keys.shape[0] == self.batch, "a static step projects all rows or none"
        store = self.store(layer)
        if self.leaves_nothing:
            self._show(store.table, positions)
        for buffer, new in zip(store.buffers(keys, values), (keys, values), strict=True):
            buffer[self._everybody[: self.batch], :, store.table.next_slot[: self.batch]] = new.to(buffer.dtype)
        self._written = keys, values
        return store

    def _show(self, table: _StaticTable, positions: Tensor) -> None:
        table.positions[self._everybody[: self.batch], table.next_slot[: self.batch]] = positions[:, 0]

    def _newest(self, layer: int, length: int) -> tuple[Tensor, Tensor]:
        """K,V of the layer that was written last: the layer below the current one."""
        assert self._written is not None and length == 1
        return self._written[0][:, :, None], self._written[1][:, :, None]

    def _not_static(self, *_: Any, **__: Any) -> Any:
        raise UsageError(
            "A static cache takes one token per row in StaticSteps.step and cannot be forked or rewound. Use new_cache."
        )

    expect = update = fork = rewind = _not_static
