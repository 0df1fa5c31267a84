"""The masked executor: runs every token through every branch and discards what was skipped. Differentiable; saves
nothing.

It is the plain reading of a decision, made for training and as the reference the packed executor must agree with.
"""

from __future__ import annotations

import torch
from torch import Tensor

from adaptive_bench.engine.booking import book_attention, book_mlp
from adaptive_bench.engine.call import SiteView
from adaptive_bench.engine.kv_cache import Write
from adaptive_bench.model.backbone import Site
from adaptive_bench.model.decisions import Decision


def run_branch(site: Site, view: SiteView, decision: Decision) -> Tensor:
    """Residual stream [B, S, H] after the branch."""
    call = view.call
    keep = None if decision.keep is None else decision.keep & call.valid
    update = dense_attention(site, view, keep) if site.branch == "attention" else dense_mlp(site, view, keep)
    update = call.backbone.post_norm(site, update)
    if decision.scale is not None:
        update = update * decision.scale.to(update.dtype)
    if keep is not None:
        update = torch.where(keep[..., None], update, 0.0)
    return view.hidden + update


def dense_attention(site: Site, view: SiteView, keep: Tensor | None) -> Tensor:
    """Attention output [B, S, H] of all tokens; the KV policy sees who skipped."""
    call, layer = view.call, site.layer
    evicted = keep is not None and call.kv_policy == "evict"
    if call.cache is None:
        keys = call.positions.masked_fill(~call.valid, -1)
    else:
        keys = call.cache.expect(layer, Write(call.positions, call.valid, keep))
    mask = call.mask(layer, call.positions, keys) if evicted else call.dense_mask(layer, keys)
    update, _ = call.backbone.attention(layer)(
        view.normed, position_embeddings=call.rotary, attention_mask=mask, past_key_values=call.cache
    )
    if call.ledger is not None:
        slots = call.valid.numel()
        reach = call.valid.shape[1] if call.cache is None else call.cache.stores[layer].used
        repaired = call.num_valid - int(keep.sum()) if keep is not None and call.repairs_kv(layer) else 0
        book_attention(call, layer, keep, slots=slots, pairs=slots * reach, repaired=repaired)
    return update


def dense_mlp(site: Site, view: SiteView, keep: Tensor | None) -> Tensor:
    """MLP output [B, S, H] of all tokens."""
    book_mlp(view.call, site.layer, keep, slots=view.call.valid.numel())
    return view.call.backbone.mlp(site.layer)(view.normed)
