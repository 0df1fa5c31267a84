"""How the executors book a branch: one formula for both, so that a method's executor cannot flatter it."""

from __future__ import annotations

from torch import Tensor

from adaptive_bench.engine.attention_mask import visible_keys
from adaptive_bench.engine.call import ForwardCall


def book_attention(
    call: ForwardCall, layer: int, keep: Tensor | None, *, slots: int, pairs: int, repaired: int
) -> None:
    """Book an attention branch.

    Args:
        keep: [B, S] kept tokens; `None` means all real ones.
        slots: Token slots that went through the module's q, k, v, o projections.
        pairs: (query, key) products the module executed.
        repaired: Tokens whose K,V were projected although they skipped; in the masked executor they are among `slots`.
    """
    ledger, cost = call.ledger, call.backbone.costs[layer]
    if ledger is None:
        return
    kept = call.num_valid if keep is None else int(keep.sum())
    seen = visible_pairs(call, layer, keep)
    executed = slots * (cost.attn_q_o + cost.attn_kv) + pairs * cost.pair
    if call.packed:
        executed += repaired * cost.attn_kv
    core = kept * (cost.attn_q_o + cost.attn_kv) + seen * cost.pair
    ledger.count(call.phase, layer, "attention", call.num_eligible, kept, cost.attention_bytes)
    ledger.book(call.phase, layer, "core.attn_q_o", kept * cost.attn_q_o)
    ledger.book(call.phase, layer, "core.attn_kv", kept * cost.attn_kv)
    ledger.book(call.phase, layer, "core.attn_mix", seen * cost.pair)
    ledger.book(call.phase, layer, "overhead.kv_repair", repaired * cost.attn_kv)
    ledger.book(call.phase, layer, "waste.dense", executed - core - repaired * cost.attn_kv)


def visible_pairs(call: ForwardCall, layer: int, keep: Tensor | None) -> int:
    """(query, key) pairs the semantics need: executing queries times the keys they see. Call after K,V are stored."""
    queries = call.valid if keep is None else keep
    if call.kv_policy != "evict":
        return int(call.visible_counts(layer)[queries].sum())
    assert call.cache is not None, "eviction always has a cache"
    if layer not in call.cache.stores:
        return 0
    seen = visible_keys(call.positions, call.cache.stores[layer].key_positions(), call.backbone.windows[layer])
    return int(seen[queries].sum())


def book_mlp(call: ForwardCall, layer: int, keep: Tensor | None, *, slots: int) -> None:
    """Book an MLP branch; `slots` tokens went through the module."""
    if call.ledger is None:
        return
    cost = call.backbone.costs[layer]
    kept = call.num_valid if keep is None else int(keep.sum())
    call.ledger.count(call.phase, layer, "mlp", call.num_eligible, kept, cost.mlp_bytes)
    call.ledger.book(call.phase, layer, "core.mlp", kept * cost.mlp)
    call.ledger.book(call.phase, layer, "waste.dense", (slots - kept) * cost.mlp)


def book_idle(call: ForwardCall, layers: range) -> None:
    """Book layers that could have run and did not."""
    if call.ledger is None:
        return
    for layer in layers:
        cost = call.backbone.costs[layer]
        call.ledger.count(call.phase, layer, "attention", call.num_eligible, 0, cost.attention_bytes)
        call.ledger.count(call.phase, layer, "mlp", call.num_eligible, 0, cost.mlp_bytes)


def book_dense(call: ForwardCall) -> None:
    """Book what the dense model needs for the same tokens, head excluded."""
    if call.ledger is None:
        return
    call.ledger.calls[call.phase] += 1
    call.ledger.tokens[call.phase] += call.num_valid
    for layer, cost in enumerate(call.backbone.costs):
        linear = call.num_valid * (cost.attn_q_o + cost.attn_kv + cost.mlp)
        pairs = int(call.visible_counts(layer)[call.valid].sum())
        call.ledger.book_dense(call.phase, layer, linear + pairs * cost.pair)


def book_head(call: ForwardCall, *, needed: int, computed: int, reused: int) -> None:
    """Book the language-model head.

    Args:
        needed: Positions of real tokens the head was run for.
        computed: All positions it was run for.
        reused: Positions a probe had answered; that probe moves from overhead to core, so it counts once.
    """
    if call.ledger is None:
        return
    head, macs = call.ledger.num_layers, call.backbone.head_macs
    call.ledger.book(call.phase, head, "core.head", (needed + reused) * macs)
    call.ledger.book(call.phase, head, "overhead.decision", -reused * macs)
    call.ledger.book(call.phase, head, "waste.dense", (computed - needed) * macs)
    call.ledger.book_dense(call.phase, head, (needed + reused) * macs)
