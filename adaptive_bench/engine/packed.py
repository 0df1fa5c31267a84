"""The packed executor: gathers the kept tokens, computes only those, and puts the result back. For evaluation.

Hugging Face modules run unchanged on the gathered tokens: attention gets their hidden states, their own rotary rows
and an explicit mask; the cache merges their K,V with what the KV policy says about the skipped ones. Padding is
never computed in packed branches. When every token is kept the branch is the dense one, bit for bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from adaptive_bench.engine.booking import book_attention, book_mlp
from adaptive_bench.engine.call import ForwardCall, SiteView
from adaptive_bench.engine.kv_cache import Write
from adaptive_bench.engine.masked import dense_attention, dense_mlp
from adaptive_bench.model.backbone import Site
from adaptive_bench.model.decisions import Decision


def run_branch(site: Site, view: SiteView, decision: Decision) -> Tensor:
    """Residual stream [B, S, H] after the branch."""
    call = view.call
    keep = call.valid if decision.keep is None else decision.keep & call.valid
    if (decision.keep is None and call.all_valid) or bool(keep.all()):
        update = dense_attention(site, view, None) if site.branch == "attention" else dense_mlp(site, view, None)
        update = call.backbone.post_norm(site, update)
        return view.hidden + (update if decision.scale is None else update * decision.scale.to(update.dtype))

    tokens = keep.flatten().nonzero()[:, 0]
    packed: Tensor | None = None
    if site.branch == "attention":
        packed = _packed_attention(site, view, keep, tokens)
    else:
        book_mlp(call, site.layer, keep, slots=tokens.numel())
        if tokens.numel():
            packed = call.backbone.mlp(site.layer)(view.normed_at(tokens))
    if packed is None:
        return view.hidden
    update = call.backbone.post_norm(site, packed)
    if decision.scale is not None:
        update = update * decision.scale.flatten(0, 1)[tokens].to(update.dtype)
    update = update.to(view.hidden.dtype)  # differs under autocast, where the residual stream stays fp32
    return view.hidden.flatten(0, 1).index_add(0, tokens, update).view_as(view.hidden)


def _packed_attention(site: Site, view: SiteView, keep: Tensor, tokens: Tensor) -> Tensor | None:
    """Attention output [N, H] of the N kept tokens, in (row, position) order; `None` if there are none."""
    call, layer = view.call, site.layer
    assert call.cache is not None, "the packed executor always has a cache"
    repaired = _repair(call, view, layer, keep) if call.repairs_kv(layer) else None
    num_repaired = 0 if repaired is None else repaired[0].shape[0]
    if not tokens.numel():
        call.cache.write_skipped_only(layer, Write(call.positions, call.valid, keep, repaired=repaired))
        book_attention(call, layer, keep, slots=0, pairs=0, repaired=num_repaired)
        return None

    rows, slots, filled = _pack(keep)
    batch_rows = torch.arange(keep.shape[0], device=keep.device) if rows is None else rows
    flat_slots = slots + batch_rows[:, None] * keep.shape[1]  # [R, N] into B*S
    keys = call.cache.expect(layer, Write(call.positions, call.valid, keep, filled, rows, repaired))
    output, _ = call.backbone.attention(layer)(
        view.normed_at(flat_slots.flatten()).view(*flat_slots.shape, -1),
        position_embeddings=tuple(table.flatten(0, 1)[flat_slots] for table in call.rotary),
        attention_mask=call.mask(layer, call.positions.flatten()[flat_slots], keys),
        past_key_values=call.cache,
    )
    book_attention(
        call,
        layer,
        keep,
        slots=slots.numel(),
        pairs=slots.numel() * call.cache.stores[layer].used,
        repaired=num_repaired,
    )
    return output[filled]


def _pack(keep: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
    """Rows with a kept token [R] (`None`: all), their slots [R, N], kept tokens first, ascending, which are filled."""
    counts = keep.sum(dim=1)
    rows = None if bool((counts > 0).all()) else counts.nonzero()[:, 0]
    if rows is not None:
        keep, counts = keep[rows], counts[rows]
    width = int(counts.max())
    slots = (~keep).long().argsort(dim=1, stable=True)[:, :width]
    filled = torch.arange(width, device=keep.device) < counts[:, None]
    return rows, slots, filled


def _repair(call: ForwardCall, view: SiteView, layer: int, keep: Tensor) -> tuple[Tensor, Tensor] | None:
    """K,V of the real tokens that skip, projected from the state they carry."""
    skipped = (call.valid & ~keep).flatten().nonzero()[:, 0]
    if not skipped.numel():
        return None
    cos, sin = (table.flatten(0, 1)[skipped] for table in call.rotary)
    return call.backbone.project_kv(layer, view.normed_at(skipped), cos, sin)
