"""Keys and values of every layer, and the KV policies, which say what a token stores where it skips attention.

* `recompute`  K,V are projected from the token's hidden state (CALM; GateSkip's default here);
* `copy_below` the K,V cached one layer below are duplicated (GateSkip's text); layer 0 falls back to `recompute`;
* `evict`      nothing is stored: the token is invisible at that layer (Mixture-of-Depths);
* `defer`      nothing is stored yet: the token runs through the deep layers later (FREE, see `layer_loop`).

Hugging Face attention modules call `update` with the K,V they computed. Before each call, the engine announces with
`expect` which tokens those are; `update` merges them with what the policy stores for the others. The decode executor
writes one token per row without the modules (`write_step`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import Cache

from adaptive_bench.engine.slots import Kept, LayerStore, Move, SlotTable
from adaptive_bench.errors import UsageError
from adaptive_bench.method import KVPolicy, Session


@dataclass(frozen=True)
class Write:
    """What one layer stores in one call of B rows and S tokens.

    Attributes:
        positions: [B, S] position of each token of this call.
        valid: [B, S] real tokens.
        keep: [B, S] tokens that execute attention, if the module sees all S tokens of all rows; `None` means all.
        kept: The executing tokens, if they are gathered and padded to a rectangle.
        repairs: K,V of the real skipped tokens are written with theirs.
    """

    positions: Tensor
    valid: Tensor
    keep: Tensor | None = None
    kept: Kept | None = None
    repairs: bool = False


class AdaptiveCache(Cache):
    """A Hugging Face `Cache` whose `update` applies the KV policy. Rows can leave the batch with `select_rows`.

    Args:
        batch: Rows B.
        policy: What a token stores where it skips attention.
        ragged: Evicted tokens take no slot (packed executor) instead of a hidden slot (masked executor).
        capacity: Slots to allocate at once, if the final length is known.
    """

    def __init__(self, batch: int, device: torch.device, policy: KVPolicy, *, ragged: bool, capacity: int = 0) -> None:
        super().__init__(layers=[])
        self.batch = batch
        self.device = device
        self.policy = policy
        self.leaves_nothing = policy in ("evict", "defer")
        # Under the other policies every token has a slot, so rows never differ in length.
        self.ragged = ragged and self.leaves_nothing
        self.capacity = capacity
        self.stores: dict[int, LayerStore] = {}
        self.session = Session.start(batch, device)
        # The one table of all layers, unless the policy leaves nothing: then each layer has its own (`store`).
        self._shared = SlotTable(batch, device, capacity)
        self._write: Write | None = None  # announced, not yet stored
        self._slots: tuple[Tensor, Tensor] | None = None  # (rows, slots) reserved for the announced tokens if ragged

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Number of real tokens of the longest row."""
        return int(self.session.host_lengths.max(initial=0))

    def begin(self, positions: Tensor, valid: Tensor, *, padded: bool) -> None:
        """Begin a call of tokens [B, S]. If all layers store every token, they share the slots added here."""
        if not self.leaves_nothing:
            self._shared.append(positions.masked_fill(~valid, -1) if padded else positions, has_hidden=padded)

    def store(self, layer: int) -> LayerStore:
        """The buffers of a layer."""
        if layer not in self.stores:
            table = SlotTable(self.batch, self.device) if self.leaves_nothing else self._shared
            self.stores[layer] = LayerStore(table)
        return self.stores[layer]

    def select_rows(self, rows: Tensor, host_rows: np.ndarray | None = None) -> None:
        """Keep only the given batch rows [R], in that order (finished requests leave the batch, requests that share a
        prompt take its row several times).
        """
        host_rows = rows.cpu().numpy() if host_rows is None else host_rows
        self.batch = rows.numel()
        self.session.select_rows(rows, host_rows)
        for table in self._tables():
            table.select_rows(rows, host_rows)
        for store in self.stores.values():
            store.select_rows(rows)

    def fork(self, rows: Tensor) -> AdaptiveCache:
        """A separate cache for the given batch rows [R], which may repeat, so that several requests can continue a
        shared prompt. This cache stays unchanged.
        """
        other = AdaptiveCache(self.batch, self.device, self.policy, ragged=self.ragged, capacity=self.capacity)
        other.session, other._shared = self.session.copy(), self._shared.copy()
        for layer, store in self.stores.items():
            other.stores[layer] = LayerStore(store.table.copy() if self.leaves_nothing else other._shared)
            other.stores[layer].keys, other.stores[layer].values = store.keys, store.values
        other.select_rows(rows)  # copies the tensors that were shared until here
        return other

    def join(self, other: AdaptiveCache) -> None:
        """Append the rows of another cache of the same model, so that new requests enter a batch during generation. The
        other cache must not be used afterwards.
        """
        if (self.policy, self.ragged) != (other.policy, other.ragged) or self.policy == "defer":
            raise UsageError(
                f"Caches can be joined if they share executor and KV policy and the policy is not defer, got "
                f"{self.policy} and {other.policy}. Generate with batches that stay unchanged."
            )
        layers = sorted({*self.stores, *other.stores})
        pairs = [(self.store(layer), other.store(layer)) for layer in layers]
        moves: dict[int, tuple[Move, Move]] = {}
        for mine, theirs in pairs:
            # A shared table moves once, and every layer's buffers follow the same move.
            if id(mine.table) not in moves:
                moves[id(mine.table)] = mine.table.join(theirs.table, ragged=self.ragged)
            mine.join(theirs, *moves[id(mine.table)])
        self.session.join(other.session)
        self.batch += other.batch

    def rewind(self, session: Session, *, first_layer: int = 0) -> None:
        """Go back to an earlier session and forget the tokens it had not seen, under every policy. Rows may go back by
        different numbers of tokens.

        Args:
            session: A `copy` of this cache's session, or of one advanced by `after`; it is not changed.
            first_layer: Layers below it keep the K,V of the forgotten tokens, which will next run through the layers
                from this one on. If layers share their slots, the tokens get the same slots.
        """
        for table in self._tables(first_layer):
            table.crop(session.lengths, ragged=self.ragged)
        self.session = session.copy()

    def _tables(self, first_layer: int = 0) -> list[SlotTable]:
        if not self.leaves_nothing:
            return [self._shared]
        return [store.table for layer, store in self.stores.items() if layer >= first_layer]

    def _refuse(self, *_: Any, **__: Any) -> None:
        # The inherited methods would silently do nothing.
        raise UsageError(
            "An AdaptiveCache cannot be cropped, reset or repeated the way Hugging Face's caches are. Use rewind or "
            "select_rows, or start a new cache."
        )

    crop = reset = reorder_cache = batch_repeat_interleave = batch_select_indices = _refuse

    def expect(self, layer: int, write: Write) -> Tensor:
        """Announce the tokens of a layer's next `update`; returns the key positions [R, T] to attend to."""
        self._write = write
        table = self.store(layer).table
        if self.ragged:
            self._reserve_ragged(table, write.positions, write.kept)
        elif self.leaves_nothing:
            # Evicted tokens get a slot that no query sees, so that shapes do not depend on decisions.
            seen = write.valid if write.keep is None else write.keep
            table.append(write.positions.masked_fill(~seen, -1), has_hidden=True)
        positions = table.visible()
        rows = None if write.kept is None else write.kept.rows
        return positions if rows is None else positions[rows]

    def is_complete(self, layer: int, length: int) -> bool:
        """Whether a layer stores all tokens of all rows, including the `length` tokens of this call, in equal rows."""
        table = self.store(layer).table
        return not table.has_hidden and table.used == self.get_seq_length() + length

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store K,V [R, kv heads, N, head size] of the executing tokens; returns those of all T slots to attend to."""
        assert self._write is not None, "the engine calls expect() before each attention module"
        write, self._write = self._write, None
        store = self.stores[layer_idx]
        # If every token is there, rows are equal and one copy fills them all.
        if self.ragged and not self.is_complete(layer_idx, key_states.shape[2]):
            flat = (states.transpose(1, 2).flatten(0, 1) for states in (key_states, value_states))
            self._fill_ragged(store, *flat)
        else:
            new = [key_states, value_states]
            if write.keep is not None and self.policy == "copy_below" and layer_idx > 0:
                chosen, below = write.keep[:, None, :, None], self._below(layer_idx, key_states)
                new = [torch.where(chosen, mine, other) for mine, other in zip(new, below, strict=True)]
            store.fill(*new)
        keys, values = store.view()
        return keys.to(key_states.dtype), values.to(value_states.dtype)

    def write_packed(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the K,V [M, kv heads, head size] of gathered tokens, as announced with `expect`: those at `Kept.read`,
        or at `Kept.rectangle` if skipped tokens are not repaired.
        """
        assert self._write is not None and self._write.kept is not None, "the engine calls expect() before"
        write, kept, self._write = self._write, self._write.kept, None
        batch, length = write.positions.shape
        if write.repairs:  # a skipped token that also fills the rectangle comes twice, with the same K,V
            # Padding slots need numbers: a masked key still enters the products, and 0 * NaN is NaN.
            new = Tensor.new_empty if kept.covers else Tensor.new_zeros
            whole = [
                new(part, (batch * length, *part.shape[1:])).index_copy_(0, kept.read, part) for part in (keys, values)
            ]
        else:
            keys, values = keys[kept.filled], values[kept.filled]
            if self.ragged:
                self._fill_ragged(self.store(layer), keys, values)
                return
            # Only the shape of the second argument matters: [1, kv heads, S, head size].
            below = self._below(layer, keys[:1, :, None].expand(-1, -1, length, -1))
            whole = [
                stored.transpose(1, 2).flatten(0, 1).to(part.dtype).index_copy(0, kept.tokens, part)
                for stored, part in zip(below, (keys, values), strict=True)
            ]
        self.store(layer).fill(*(part.view(batch, length, *part.shape[1:]).transpose(1, 2) for part in whole))

    def write_below(self, layer: int, length: int) -> None:
        """Store what the policy asks for if none of the `length` tokens of a call projects K,V at this layer."""
        write, self._write = self._write, None
        # If these tokens have slots: from `begin`, or from `expect` where rows are not ragged.
        if not self.leaves_nothing or (write is not None and not self.ragged):
            # Cloned, since `fill` may keep what it is given, and this is a view of the buffers below.
            self.store(layer).fill(*(part.clone() for part in self._newest(layer - 1, length)))

    def stored(self, layer: int, rows: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """K,V of a layer's slots in use, [R, kv heads, T, head size], of the given rows or of all."""
        keys, values = (part.to(dtype) for part in self.stores[layer].view())
        return (keys, values) if rows is None else (keys[rows], values[rows])

    def write_step(self, layer: int, positions: Tensor, kept: Kept | None, keys: Tensor, values: Tensor) -> LayerStore:
        """Store the K,V [B, kv heads, head size] of a decode step, one token per row at positions [B, 1], or those
        [N, ...] of the rows that execute (`kept`; `None` for all) if only these were projected.
        """
        store = self.store(layer)
        if self.leaves_nothing:
            self._reserve_ragged(store.table, positions, kept)
            self._fill_ragged(store, keys, values)
            return store
        # `begin` has already added this token's slot to the shared table.
        slot = store.table.used - 1
        key_buffer, value_buffer = store.buffers(keys, values)
        # K,V of every row were projected, as the policy `recompute` wants: skipping rows store theirs too.
        if kept is None or keys.shape[0] == self.batch:
            key_buffer.select(2, slot).copy_(keys)
            value_buffer.select(2, slot).copy_(values)
            return store
        # `copy_below`: first every row takes what is below, then executing rows overwrite it with their own.
        below_keys, below_values = self._below(layer, keys[:, :, None])
        key_buffer[:, :, slot], value_buffer[:, :, slot] = below_keys[:, :, 0], below_values[:, :, 0]
        key_buffer[kept.tokens, :, slot] = keys.to(key_buffer.dtype)
        value_buffer[kept.tokens, :, slot] = values.to(value_buffer.dtype)
        return store

    def write_step_of_all(
        self, layer: int, positions: Tensor, keep: Tensor, keys: Tensor, values: Tensor
    ) -> LayerStore:
        """Store the K,V [B, kv heads, head size] of a decode step in which every row was run, without waiting for the
        decisions. If the policy stores nothing for skipped tokens, rows outside `keep` [B, 1] get a hidden slot.
        """
        if self.leaves_nothing:
            store = self.write_step(layer, positions.masked_fill(~keep, -1), None, keys, values)
            # Perhaps no row skipped, but the host does not know.
            store.table.has_hidden = store.table.holds_unseen = True
            return store
        if self.policy == "copy_below" and layer > 0:
            below = self._below(layer, keys[:, :, None])
            keys, values = (
                torch.where(keep[..., None], mine, stored[:, :, 0].to(mine.dtype))
                for stored, mine in zip(below, (keys, values), strict=True)
            )
        return self.write_step(layer, positions, None, keys, values)

    def _reserve_ragged(self, table: SlotTable, positions: Tensor, kept: Kept | None) -> None:
        batch, length = positions.shape
        kept = kept or Kept.everything(batch, length, self.device)
        # A flat index is row * length + column.
        rows = kept.tokens // length
        slots = table.append_ragged(kept.host_tokens // length, rows, positions.flatten()[kept.tokens])
        self._slots = rows, slots

    def _fill_ragged(self, store: LayerStore, keys: Tensor, values: Tensor) -> None:
        assert self._slots is not None
        slots, self._slots = self._slots, None
        store.fill_at(*slots, keys, values)

    def _below(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """K,V that the layer below stored for the tokens of this call, [B, kv heads, S, head size]."""
        keys, values = self._newest(layer - 1, like.shape[2])
        if keys.shape[1] != like.shape[1] or keys.shape[-1] != like.shape[-1]:
            raise UsageError(
                f"The KV policy copy_below needs equal K,V shapes in neighbouring layers, but layer {layer - 1} has "
                f"{tuple(keys.shape[1::2])} and layer {layer} has {tuple(like.shape[1::2])}. Use kv=recompute."
            )
        return keys, values

    def _newest(self, layer: int, length: int) -> tuple[Tensor, Tensor]:
        """K,V that a layer stored for the last `length` tokens, [B, kv heads, length, head size]."""
        keys, values = self.stores[layer].view()
        return keys[:, :, -length:], values[:, :, -length:]
