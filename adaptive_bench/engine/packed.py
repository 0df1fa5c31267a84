"""The packed executor: gathers the kept tokens, computes only those, and puts the result back. For evaluation.

Gathered tokens go through the arithmetic of Hugging Face's modules, not through the modules (`backbone.step`): one
gather brings what attends and what only leaves K,V, and query heads that share a key head do without copies of it.
Padding is never computed in packed branches, unless leaving it in spares attention its mask. When every token is kept
the branch is the dense one, bit for bit. One token per row has an executor of its own, `decode`.
"""

from __future__ import annotations

from torch import Tensor

from adaptive_bench.backbone import Site, Turn
from adaptive_bench.engine.call import EngineCall
from adaptive_bench.engine.kept import Kept
from adaptive_bench.engine.kv_cache import Write
from adaptive_bench.engine.masked import add_update, dense_attention, dense_mlp, seen
from adaptive_bench.method import Decision, SiteView


def run_branch(call: EngineCall, view: SiteView, decision: Decision) -> Tensor:
    """Residual stream [B, S, H] after the branch."""
    site, kept = view.site, call.kept(decision.keep)
    if kept is not None and site.branch == "attention" and decision.keep is None and _padding_is_harmless(call, site):
        update = dense_attention(call, view, None)  # causality hides the padding: the kernel needs no mask
        return add_update(call, site, view.hidden, update, decision.scale, None)
    if kept is None:
        update = dense_attention(call, view, None) if site.branch == "attention" else dense_mlp(call, view, None)
        return add_update(call, site, view.hidden, update, decision.scale, None)
    packed = _packed_attention(call, view, kept) if site.branch == "attention" else packed_mlp(call, view, kept)
    return view.hidden if packed is None else add_packed(call, view, packed, decision.scale, kept)


def _padding_is_harmless(call: EngineCall, site: Site) -> bool:
    """Nobody skips, padding stands on the right alone and no earlier token is cached."""
    first = call.cache is not None and not call.cache.leaves_nothing and call.cache.get_seq_length() == 0
    return first and call.pads_right_only and call.dense_mask(site.layer, call.own_keys) is None


def add_packed(call: EngineCall, view: SiteView, update: Tensor, scale: Tensor | None, kept: Kept) -> Tensor:
    """The residual stream [B, S, H] plus a branch's output [N, H] for its kept tokens, normalised and scaled."""
    update = call.backbone.added(view.site, update)
    if scale is not None:
        update = update * scale.flatten(0, 1).index_select(0, kept.tokens).to(update.dtype)
    update = update.to(view.hidden.dtype)  # differs under autocast, where the residual stream stays fp32
    return view.hidden.flatten(0, 1).index_add(0, kept.tokens, update).view_as(view.hidden)


def packed_mlp(call: EngineCall, view: SiteView, kept: Kept) -> Tensor | None:
    """MLP output [N, H] of the N kept tokens; `None` if there are none."""
    if call.tally is not None:
        call.tally.mlp(view.site.layer, kept.mask, slots=call.tally.weigh(kept.mask))
    if not kept.count:
        return None
    return call.backbone.step.mlp(call.backbone.mlp(view.site.layer), view.read_at(kept.tokens))


def _packed_attention(call: EngineCall, view: SiteView, kept: Kept) -> Tensor | None:
    """Attention output [N, H] of the N kept tokens, in (row, position) order; `None` if there are none."""
    layer = view.site.layer
    assert call.cache is not None, "the packed executor always has a cache"
    step, attention = call.backbone.step, call.backbone.attention(layer)
    repairs = call.repairs_kv(layer)
    write = Write(call.positions, call.valid, kept=kept, repairs=repairs)
    keys = call.cache.expect(layer, write)
    if repairs or kept.count:
        tokens = kept.read if repairs else kept.rectangle.flatten()
        states, turn = view.read_at(tokens), call.turns[layer].at(tokens)
        call.cache.write_packed(layer, *step.keys_and_values(attention, states, turn))
    else:
        call.cache.write_skipped_only(layer)
    if not kept.count:
        if call.tally is not None:
            call.tally.attention(layer, kept.mask, slots=0, pairs=0, repairs=repairs)
        return None

    chosen = kept.rectangle
    first = slice(chosen.numel())  # who attends comes before who only leaves K,V
    queries = step.queries(attention, states[first], Turn(turn.cos[first], turn.sin[first]))
    mixed = step.attend_many(
        attention,
        queries.view(*chosen.shape, *queries.shape[1:]).transpose(1, 2),
        *call.cache.stored(layer, kept.rows, queries.dtype),
        call.mask(layer, call.positions.flatten()[chosen], keys),
    ).flatten(0, 1)
    if call.tally is not None:
        slots = kept.width * call.tally.rows(kept.host_rows)
        call.tally.attention(
            layer, kept.mask, slots=slots, pairs=slots * keys.shape[1], repairs=repairs, visible=seen(call, layer)
        )
    return step.linear(attention.o_proj, mixed).index_select(0, kept.filled)
