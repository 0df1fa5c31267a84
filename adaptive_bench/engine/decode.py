"""The decode executor: one more token per row, which is what generation consists of.

The packed executor for a call of one token per row, without what a general call needs: the linear maps are called
directly, K,V of executing and skipped rows come out of one projection and go straight into their slots, query heads
that share a key head are one group instead of copies of that head, and masks are made once per call. Same decisions
and same books as `packed`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from adaptive_bench.engine.call import EngineCall
from adaptive_bench.engine.kept import Kept
from adaptive_bench.engine.masked import add_update, seen
from adaptive_bench.engine.packed import add_packed
from adaptive_bench.method import Decision, SiteView


def run_branch(call: EngineCall, view: SiteView, decision: Decision) -> Tensor:
    """Residual stream [B, 1, H] after the branch."""
    if call.fixed_shapes and call.reads(decision.keep):
        return _run_for_all(call, view, decision)
    kept = call.kept(decision.keep)
    update = (_attention if view.site.branch == "attention" else _mlp)(call, view, kept)
    if update is None:
        return view.hidden
    if kept is None:
        return add_update(call, view.site, view.hidden, update[:, None], decision.scale, None)
    return add_packed(call, view, update, decision.scale, kept)


def _run_for_all(call: EngineCall, view: SiteView, decision: Decision) -> Tensor:
    """Residual stream [B, 1, H] after the branch ran for every row, whatever was decided: nobody waits to know it."""
    assert decision.keep is not None
    keep = decision.keep if call.all_valid else decision.keep & call.valid
    layer = view.site.layer
    if view.site.branch == "attention":
        update = _attention_of_all(call, view, keep)
    else:
        if call.tally is not None:
            call.tally.mlp(layer, keep, slots=call.tally.rows())
        update = call.backbone.step.mlp(call.backbone.mlp(layer), view.read[:, 0])
    return add_update(call, view.site, view.hidden, update[:, None], decision.scale, keep)


def _attention_of_all(call: EngineCall, view: SiteView, keep: Tensor) -> Tensor:
    """Attention output [B, H] of all rows; the KV policy sees who skipped."""
    assert call.cache is not None, "decoding always has a cache"
    layer = view.site.layer
    step, attention = call.backbone.step, call.backbone.attention(layer)
    queries, keys, values = step.project(attention, view.read[:, 0], call.turns[layer])
    store = call.cache.write_step_of_all(layer, call.positions, keep, keys, values)
    stored_keys, stored_values = (part.to(queries.dtype) for part in store.view())
    mixed = step.attend(attention, queries, stored_keys, stored_values, _mask(call, layer))
    if call.tally is not None:
        slots = call.tally.rows()
        call.tally.attention(
            layer,
            keep,
            slots=slots,
            pairs=slots * store.table.used,
            repairs=call.repairs_kv(layer),
            visible=seen(call, layer),
            of_all=True,
        )
    return step.linear(attention.o_proj, mixed)


def _mlp(call: EngineCall, view: SiteView, kept: Kept | None) -> Tensor | None:
    """MLP output [N, H] of the rows that execute; `None` if there are none."""
    if call.tally is not None:
        mask = None if kept is None else kept.mask
        call.tally.mlp(view.site.layer, mask, slots=call.tally.rows() if mask is None else call.tally.weigh(mask))
    if kept is not None and not kept.count:
        return None
    states = view.read[:, 0] if kept is None else view.read_at(kept.tokens)
    return call.backbone.step.mlp(call.backbone.mlp(view.site.layer), states)


def _attention(call: EngineCall, view: SiteView, kept: Kept | None) -> Tensor | None:
    """Attention output [N, H] of the rows that execute; `None` if there are none."""
    assert call.cache is not None, "decoding always has a cache"
    layer = view.site.layer
    step, attention = call.backbone.step, call.backbone.attention(layer)
    turn, repairs = call.turns[layer], call.repairs_kv(layer)
    if kept is None:
        queries, keys, values = step.project(attention, view.read[:, 0], turn)
    elif repairs:  # every row leaves K,V
        keys, values = step.keys_and_values(attention, view.read[:, 0], turn)
        if kept.count:
            queries = step.queries(attention, view.read_at(kept.tokens), turn.at(kept.tokens))
    elif kept.count:
        queries, keys, values = step.project(attention, view.read_at(kept.tokens), turn.at(kept.tokens))
    else:
        _nobody(call, layer, kept)
        return None
    store = call.cache.write_step(layer, call.positions, kept, keys, values)
    if kept is not None and not kept.count:
        _book(call, layer, kept, [], repairs=repairs)
        return None

    attending = _runs(call, kept)
    mask = _mask(call, layer)
    stored_keys, stored_values = (part.to(queries.dtype) for part in store.view())
    if kept is not None:  # everybody has a place; those that skip are left out run by run
        queries = queries.new_zeros(call.valid.shape[0], *queries.shape[1:]).index_copy(0, kept.tokens, queries)
    parts = []
    for start, end in attending:
        rows = slice(start, end)
        seen_by = None if mask is None else mask[rows]
        parts.append(step.attend(attention, queries[rows], stored_keys[rows], stored_values[rows], seen_by))
    mixed = parts[0] if len(parts) == 1 else torch.cat(parts)
    if kept is not None:
        mixed = mixed.index_select(0, _places(call, kept, attending))
    _book(call, layer, kept, attending, repairs=repairs and kept is not None)
    return step.linear(attention.o_proj, mixed)


def _nobody(call: EngineCall, layer: int, kept: Kept) -> None:
    """No row executes and nothing is projected: what is stored is a matter of the policy alone."""
    assert call.cache is not None
    call.cache.write_nothing(layer)
    _book(call, layer, kept, [], repairs=False)


def _mask(call: EngineCall, layer: int) -> Tensor | None:
    """Additive mask [B, 1, 1, T] over the layer's slots, `None` if every row sees all of them."""
    assert call.cache is not None
    table, window = call.cache.store(layer).table, call.backbone.windows[layer]
    sparse = call.cache.leaves_nothing  # few keys may still lie far apart
    if not table.has_hidden and (window is None or (table.used < window and not sparse)):
        return None
    if sparse:
        return call.mask(layer, call.positions, table.visible())
    return call.shared_mask(window, table.visible())


def _runs(call: EngineCall, kept: Kept | None) -> list[tuple[int, int]]:
    """Runs of rows [start, end) that attend. Views of the buffers: copying the K,V of scattered rows costs twice what
    attending does. Rows alone between two that execute attend along, as they cost no more than another call.
    """
    everybody = [(0, call.valid.shape[0])]
    if kept is None or call.valid.device.type != "cpu":
        return everybody
    rows = kept.host_tokens
    breaks = np.flatnonzero(np.diff(rows) > 2)
    starts, ends = [0, *(breaks + 1)], [*breaks, len(rows) - 1]
    return [(int(rows[start]), int(rows[end]) + 1) for start, end in zip(starts, ends, strict=True)]


def _places(call: EngineCall, kept: Kept, attending: list[tuple[int, int]]) -> Tensor:
    """Where the rows that execute [N] are among those that attend, one run after another."""
    if len(attending) == 1 and attending[0][0] == 0:
        return kept.tokens
    places = np.concatenate([np.arange(start, end) for start, end in attending])
    return torch.from_numpy(np.searchsorted(places, kept.host_tokens)).to(call.valid.device)


def _book(call: EngineCall, layer: int, kept: Kept | None, attending: list[tuple[int, int]], *, repairs: bool) -> None:
    """Note the branch; rows that attended without executing are waste."""
    if call.tally is None:
        return
    assert call.cache is not None
    slots = call.tally.rows() if kept is None else call.tally.weigh(kept.mask)
    rows = sum(call.tally.rows(np.arange(start, end)) for start, end in attending)
    pairs = rows * call.cache.store(layer).table.used
    visible = seen(call, layer) if attending else None
    mask = None if kept is None else kept.mask
    call.tally.attention(layer, mask, slots=slots, pairs=pairs, repairs=repairs, visible=visible)
