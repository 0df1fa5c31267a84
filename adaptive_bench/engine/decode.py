"""The decode executor: one more token per row, which is what generation consists of.

The packed executor for a call of one token per row, without what a general call needs: the linear maps are called
directly, K,V of executing and skipped rows come out of one projection and go straight into their slots, query heads
that share a key head are one group instead of copies of that head, and masks are made once per call. Same decisions
and same books as `packed`.
"""

from __future__ import annotations

from torch import Tensor

from adaptive_bench.engine.attention_mask import additive, visible_keys
from adaptive_bench.engine.call import EngineCall
from adaptive_bench.engine.kept import Kept
from adaptive_bench.engine.masked import add_update, seen
from adaptive_bench.engine.packed import add_packed
from adaptive_bench.method import Decision, SiteView

# Copying the K,V of the rows that attend costs twice what attending does: until most rows are idle, all attend along.
_GATHER_BELOW = 0.3


def run_branch(call: EngineCall, view: SiteView, decision: Decision) -> Tensor:
    """Residual stream [B, 1, H] after the branch."""
    kept = call.kept(decision.keep)
    update = (_attention if view.site.branch == "attention" else _mlp)(call, view, kept)
    if update is None:
        return view.hidden
    if kept is None:
        return add_update(call, view.site, view.hidden, update[:, None], decision.scale, None)
    return add_packed(call, view, update, decision.scale, kept)


def _mlp(call: EngineCall, view: SiteView, kept: Kept | None) -> Tensor | None:
    """MLP output [N, H] of the rows that execute; `None` if there are none."""
    if call.tally is not None:
        mask = None if kept is None else kept.mask
        call.tally.mlp(view.site.layer, mask, slots=call.tally.rows() if mask is None else call.tally.weigh(mask))
    if kept is not None and not kept.count:
        return None
    states = view.normed[:, 0] if kept is None else view.normed_at(kept.tokens)
    return call.backbone.step.mlp(call.backbone.mlp(view.site.layer), states)


def _attention(call: EngineCall, view: SiteView, kept: Kept | None) -> Tensor | None:
    """Attention output [N, H] of the rows that execute; `None` if there are none."""
    assert call.cache is not None, "decoding always has a cache"
    layer = view.site.layer
    step, attention = call.backbone.step, call.backbone.attention(layer)
    turn, repairs = call.turn, call.repairs_kv(layer)
    if kept is None:
        queries, keys, values = step.project(attention, view.normed[:, 0], turn)
    elif repairs:  # every row leaves K,V
        keys, values = step.keys_and_values(attention, view.normed[:, 0], turn)
        if kept.count:
            queries = step.queries(attention, view.normed_at(kept.tokens), turn.at(kept.tokens))
    elif kept.count:
        queries, keys, values = step.project(attention, view.normed_at(kept.tokens), turn.at(kept.tokens))
    else:
        _nobody(call, layer, kept)
        return None
    store = call.cache.write_step(layer, call.positions, kept, keys, values)
    if kept is not None and not kept.count:
        _book(call, layer, kept, 0, repairs=repairs)
        return None

    mask = _mask(call, layer)
    stored_keys, stored_values = (stored.to(queries.dtype) for stored in store.view())
    attending = len(call.host_valid)
    if kept is not None and kept.count < _GATHER_BELOW * attending:
        attending = kept.count
        stored_keys, stored_values = (stored.index_select(0, kept.tokens) for stored in (stored_keys, stored_values))
        mask = None if mask is None else mask[kept.tokens]
    elif kept is not None:
        everyone = queries.new_zeros(attending, *queries.shape[1:])
        queries = everyone.index_copy(0, kept.tokens, queries)
    mixed = step.attend(attention, queries, stored_keys, stored_values, mask)
    if kept is not None and attending > kept.count:
        mixed = mixed.index_select(0, kept.tokens)
    _book(call, layer, kept, attending, repairs=repairs and kept is not None)
    return step.linear(attention.o_proj, mixed)


def _nobody(call: EngineCall, layer: int, kept: Kept) -> None:
    """No row executes and nothing is projected: what is stored is a matter of the policy alone."""
    assert call.cache is not None
    call.cache.write_nothing(layer)
    _book(call, layer, kept, 0, repairs=False)


def _mask(call: EngineCall, layer: int) -> Tensor | None:
    """Additive mask [B, 1, 1, T] over the layer's slots, `None` if every row sees all of them."""
    assert call.cache is not None
    table, window = call.cache.store(layer).table, call.backbone.windows[layer]
    sparse = call.cache.leaves_nothing  # few keys may still lie far apart
    if not table.has_hidden and (window is None or (table.used < window and not sparse)):
        return None
    if sparse:
        return additive(visible_keys(call.positions, table.visible(), window), call.rotary[0].dtype)
    return call.shared_mask(window, table.visible())


def _book(call: EngineCall, layer: int, kept: Kept | None, attending: int, *, repairs: bool) -> None:
    """Note the branch; rows that attended without executing are waste."""
    if call.tally is None:
        return
    assert call.cache is not None
    everyone = call.tally.rows()
    slots = everyone if kept is None else call.tally.weigh(kept.mask)
    rows = everyone if attending == call.host_valid.shape[0] else slots
    pairs = rows * call.cache.store(layer).table.used if attending else 0
    visible = seen(call, layer) if attending else None
    mask = None if kept is None else kept.mask
    call.tally.attention(layer, mask, slots=slots, pairs=pairs, repairs=repairs, visible=visible)
