"""Keys and values of every layer, and the KV policy that says what a token leaves behind where it skipped attention.

* `recompute`  its K,V are projected from the hidden state it carries (CALM; GateSkip's default here);
* `copy_below` the K,V cached one layer below are duplicated (GateSkip's text); layer 0 falls back to `recompute`;
* `evict`      it leaves nothing and is invisible at that layer (Mixture-of-Depths);
* `defer`      nothing yet; it goes through the deep layers later (FREE, see `deferral`).

Hugging Face attention modules call `update` with the K,V they computed. The engine announces before each call, with
`expect`, which tokens those are; `update` merges them with what the policy says about the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import Cache

from adaptive_bench.errors import UsageError

KVPolicy = Literal["recompute", "copy_below", "evict", "defer"]
_HASH_BASE = -7046029254386353131  # odd 64-bit constant; products wrap around


class LayerStore:
    """One layer's K,V in buffers that grow by doubling.

    A call first reserves slots (their positions are then known, so the mask can be built), later fills them.

    Attributes:
        positions: [B, capacity] position of the token in each slot, -1 where the slot shows nothing.
        keys, values: [B, kv heads, capacity, head size]; `None` before the first fill. Each keeps the dtype of its
            first fill: under autocast keys (turned by fp32 rotary tables) and values differ, and calls may as well.
    """

    def __init__(self, batch: int, device: torch.device) -> None:
        self.positions = torch.full((batch, 0), -1, dtype=torch.long, device=device)
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.used = 0
        self._lengths = torch.zeros(batch, dtype=torch.long, device=device)
        self._reserved: tuple[Tensor, Tensor] | None = None

    def key_positions(self) -> Tensor:
        """[B, T] position per slot in use, -1 where nothing is visible."""
        return self.positions[:, : self.used]

    def view(self) -> tuple[Tensor, Tensor]:
        """K and V of the slots in use, [B, kv heads, T, head size]."""
        assert self.keys is not None and self.values is not None
        return self.keys[:, :, : self.used], self.values[:, :, : self.used]

    def row_lengths(self) -> Tensor:
        """[B] slots each row holds (they differ after eviction)."""
        return self._lengths

    def reserve(self, positions: Tensor) -> None:
        """Give every row S more slots for tokens at positions [B, S]."""
        start, self.used = self.used, self.used + positions.shape[1]
        self._grow_positions()
        self.positions[:, start : self.used] = positions
        self._lengths = torch.full_like(self._lengths, self.used)
        self._reserved = None

    def reserve_ragged(self, rows: Tensor, positions: Tensor) -> None:
        """Give N tokens a slot each at the end of their row; rows and positions [N], ascending within a row."""
        added = torch.bincount(rows, minlength=self._lengths.numel())
        first = torch.cumsum(added, 0) - added
        slots = self._lengths[rows] + torch.arange(rows.numel(), device=rows.device) - first[rows]
        self._lengths = self._lengths + added
        self.used = int(self._lengths.max()) if self._lengths.numel() else 0
        self._grow_positions()
        self.positions[rows, slots] = positions
        self._reserved = (rows, slots)

    def fill(self, keys: Tensor, values: Tensor) -> None:
        """Fill the slots of `reserve`: K,V [B, kv heads, S, head size]."""
        start = self.used - keys.shape[2]
        if start == 0:  # nothing to append to: keep the tensors themselves, which stay differentiable
            self.keys, self.values = keys, values
            return
        self._grow_buffers(keys, values)
        assert self.keys is not None and self.values is not None
        self.keys[:, :, start : self.used] = keys
        self.values[:, :, start : self.used] = values

    def fill_ragged(self, keys: Tensor, values: Tensor) -> None:
        """Fill the slots of `reserve_ragged`: K,V [N, kv heads, head size]."""
        assert self._reserved is not None
        rows, slots = self._reserved
        self._grow_buffers(keys[:, :, None], values[:, :, None])
        assert self.keys is not None and self.values is not None
        self.keys[rows, :, slots] = keys.to(self.keys.dtype)
        self.values[rows, :, slots] = values.to(self.values.dtype)

    def select_rows(self, rows: Tensor) -> None:
        """Keep only the given batch rows."""
        self.positions, self._lengths = self.positions[rows], self._lengths[rows]
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]

    def crop(self, length: int) -> None:
        """Forget the slots after the last one that shows a token before position `length`; for one row."""
        positions = self.key_positions()[0]
        seen = ((positions >= 0) & (positions < length)).nonzero()
        self.used = int(seen[-1]) + 1 if seen.numel() else 0
        self.positions[:, self.used :] = -1
        self._lengths = torch.full_like(self._lengths, self.used)
        self._reserved = None

    def _grow_positions(self) -> None:
        batch, capacity = self.positions.shape
        if self.used > capacity:
            more = self.positions.new_full((batch, max(self.used, 2 * capacity) - capacity), -1)
            self.positions = torch.cat([self.positions, more], dim=1)

    def _grow_buffers(self, keys: Tensor, values: Tensor) -> None:
        """Room for `used` slots; like [*, kv heads, *, head size]."""
        self.keys, self.values = self._grown(self.keys, keys), self._grown(self.values, values)

    def _grown(self, buffer: Tensor | None, like: Tensor) -> Tensor:
        batch, heads, size = self.positions.shape[0], like.shape[1], like.shape[-1]
        if buffer is None:
            return like.new_zeros(batch, heads, self.used, size)
        capacity = buffer.shape[2]
        if self.used <= capacity:
            return buffer
        more = buffer.new_zeros(batch, heads, max(self.used, 2 * capacity) - capacity, size)
        return torch.cat([buffer, more], dim=2)


@dataclass(frozen=True)
class Write:
    """What one layer stores in one call.

    Attributes:
        positions: [B, S] position of each token of this call.
        valid: [B, S] real tokens.
        keep: [B, S] tokens that execute attention; `None` means all.
        filled: [R, N] which packed slots hold a kept token; `None` when the module sees all S tokens of all rows.
        rows: [R] batch rows that keep at least one token; `None` for all.
        repaired: K,V [M, kv heads, head size] of the real skipped tokens, in (row, position) order.
    """

    positions: Tensor
    valid: Tensor
    keep: Tensor | None = None
    filled: Tensor | None = None
    rows: Tensor | None = None
    repaired: tuple[Tensor, Tensor] | None = None


def hash_terms(input_ids: Tensor, positions: Tensor) -> Tensor:
    """[B, S] what the tokens [B, S] at positions [B, S] add to the 64-bit hashes of prefixes that hold them."""
    powers = torch.full((int(positions.max()) + 1,), _HASH_BASE, device=positions.device).cumprod(0)
    return (input_ids + 1) * powers[positions]


@dataclass
class Session:
    """What one request carries from call to call besides K,V.

    Attributes:
        lengths: [B] real tokens seen.
        hash_sum: [B] running sum behind the prefix hash.
        state: Tensors [B, ...] a method keeps per request.
    """

    lengths: Tensor
    hash_sum: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)

    def select_rows(self, rows: Tensor) -> None:
        """Keep only the given batch rows."""
        self.lengths, self.hash_sum = self.lengths[rows], self.hash_sum[rows]
        self.state = {name: value[rows] for name, value in self.state.items()}

    def copy(self) -> Session:
        """Stays as it is when calls go on. Tensors are shared, since calls replace them instead of writing to them."""
        return Session(self.lengths, self.hash_sum, dict(self.state))

    def after(self, tokens: Tensor) -> Session:
        """The session N >= 1 more real tokens [B, N] later; the method's own state stays the earlier one."""
        positions = self.lengths[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        hash_sum = self.hash_sum + hash_terms(tokens, positions).sum(dim=1)
        return Session(self.lengths + tokens.shape[1], hash_sum, dict(self.state))


class AdaptiveCache(Cache):
    """A Hugging Face `Cache` whose `update` applies the KV policy. Rows can leave the batch with `select_rows`.

    Args:
        batch: Rows B.
        policy: What a token leaves behind where it skips attention.
        ragged: Evicting leaves no slot (packed executor) instead of a hidden one (masked executor).
    """

    def __init__(self, batch: int, device: torch.device, policy: KVPolicy, *, ragged: bool) -> None:
        super().__init__(layers=[])
        self.batch = batch
        self.device = device
        self.policy = policy
        self.ragged = ragged and policy in ("evict", "defer")
        self.stores: dict[int, LayerStore] = {}
        self.session = Session(
            torch.zeros(batch, dtype=torch.long, device=device), torch.zeros(batch, dtype=torch.long, device=device)
        )
        self._write: Write | None = None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Real tokens of the longest row."""
        return int(self.session.lengths.max()) if self.batch else 0

    def select_rows(self, rows: Tensor) -> None:
        """Keep only the given batch rows (finished requests leave the batch)."""
        self.batch = rows.numel()
        self.session.select_rows(rows)
        for store in self.stores.values():
            store.select_rows(rows)

    def rewind(self, session: Session) -> None:
        """Go back to an earlier session: tokens it had not seen are forgotten in every layer, whatever the policy.

        Args:
            session: A `copy` of this cache's session, or that some tokens later (`after`); it is not changed.

        Raises:
            UsageError: The cache holds more or less than one row, or fewer tokens than the session.
        """
        if self.batch != 1:
            raise UsageError(
                f"A cache can be rewound if it holds one row, got {self.batch}. Rewind each request's own cache."
            )
        length = int(session.lengths)
        if length > self.get_seq_length():
            raise UsageError(
                f"A cache can only be rewound to fewer tokens than its {self.get_seq_length()}, got a session of "
                f"{length}. Take the session from this cache."
            )
        for store in self.stores.values():
            store.crop(length)
        self.session = session.copy()

    def _refuse(self, *_: Any, **__: Any) -> None:
        # Inherited, these would do nothing at all and say so to nobody.
        raise UsageError(
            "An AdaptiveCache cannot be cropped, reset or reordered the way Hugging Face's caches are. Use rewind or "
            "select_rows, or start a new cache."
        )

    crop = reset = reorder_cache = batch_repeat_interleave = batch_select_indices = _refuse

    def expect(self, layer: int, write: Write) -> Tensor:
        """Announce what the next `update` of a layer brings; returns the key positions [R, T] it will attend to."""
        self._write = write
        store = self.stores.setdefault(layer, LayerStore(self.batch, self.device))
        leaves_nothing = self.policy == "evict" or self.ragged
        seen = write.keep if write.keep is not None and leaves_nothing else write.valid
        if self.ragged:
            rows, columns = seen.nonzero(as_tuple=True)
            store.reserve_ragged(rows, write.positions[rows, columns])
        else:
            store.reserve(write.positions.masked_fill(~seen, -1))
        positions = store.key_positions()
        return positions if write.rows is None else positions[write.rows]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store K,V [R, kv heads, N, head size] of the executing tokens; returns those to attend to, with T slots."""
        assert self._write is not None, "the engine calls expect() before each attention module"
        write, self._write = self._write, None
        store = self.stores[layer_idx]
        if write.filled is not None:
            kept = (key_states.transpose(1, 2)[write.filled], value_states.transpose(1, 2)[write.filled])
            self._fill_packed(store, layer_idx, kept, write)
        elif self.ragged:
            rows, columns = write.valid.nonzero(as_tuple=True)
            store.fill_ragged(key_states[rows, :, columns], value_states[rows, :, columns])
        else:
            self._fill_dense(store, layer_idx, key_states, value_states, write)
        keys, values = store.view()
        keys, values = keys.to(key_states.dtype), values.to(value_states.dtype)
        return (keys, values) if write.rows is None else (keys[write.rows], values[write.rows])

    def write_skipped_only(self, layer: int, write: Write) -> None:
        """Nobody executes attention at this layer: store only what the policy says about skipped tokens."""
        self.expect(layer, write)
        if self.ragged:
            return
        if write.repaired is not None:
            keys, values = write.repaired
        else:
            keys, values = (stored.transpose(1, 2).flatten(0, 1) for stored in self.stores[layer - 1].view())
        self._fill_packed(self.stores[layer], layer, (keys[:0], values[:0]), write)

    def _fill_dense(self, store: LayerStore, layer: int, keys: Tensor, values: Tensor, write: Write) -> None:
        if write.keep is not None and self.policy == "copy_below" and layer > 0:
            below_keys, below_values = self._below(layer, keys)
            chosen = write.keep[:, None, :, None]
            keys, values = torch.where(chosen, keys, below_keys), torch.where(chosen, values, below_values)
        store.fill(keys, values)

    def _fill_packed(self, store: LayerStore, layer: int, kept: tuple[Tensor, Tensor], write: Write) -> None:
        """Kept K,V [N, kv heads, head size], in (row, position) order."""
        if self.ragged:
            store.fill_ragged(*kept)
            return
        assert write.keep is not None
        batch, length = write.valid.shape
        keys = kept[0].new_zeros(batch, length, *kept[0].shape[1:])
        values = kept[1].new_zeros(batch, length, *kept[1].shape[1:])
        keys[write.keep], values[write.keep] = kept
        skipped = write.valid & ~write.keep
        if write.repaired is not None:
            keys[skipped], values[skipped] = write.repaired
        elif self.policy == "copy_below" and layer > 0:
            below_keys, below_values = self._below(layer, keys.transpose(1, 2))
            keys[skipped] = below_keys.transpose(1, 2)[skipped].to(keys.dtype)
            values[skipped] = below_values.transpose(1, 2)[skipped].to(values.dtype)
        store.fill(keys.transpose(1, 2), values.transpose(1, 2))

    def _below(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """K,V that the layer below stored for the tokens of this call, [B, kv heads, S, head size]."""
        keys, values = self.stores[layer - 1].view()
        if keys.shape[1] != like.shape[1] or keys.shape[-1] != like.shape[-1]:
            raise UsageError(
                f"The KV policy copy_below needs equal K,V shapes in neighbouring layers, but layer {layer - 1} has "
                f"{tuple(keys.shape[1::2])} and layer {layer} has {tuple(like.shape[1::2])}. Use kv=recompute."
            )
        length = like.shape[2]
        return keys[:, :, -length:], values[:, :, -length:]
