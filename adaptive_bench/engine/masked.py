"""The masked executor: runs every token through every branch and discards what was skipped. Differentiable; saves
nothing.

It is the plain reading of a decision, made for training and as the reference the packed executor must agree with. Its
shapes depend on no decision, so it never waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from adaptive_bench.backbone import Site
from adaptive_bench.engine.attention_mask import additive, visible_keys
from adaptive_bench.engine.call import EngineCall
from adaptive_bench.engine.kv_cache import Write
from adaptive_bench.method import Decision, SiteView


def run_branch(call: EngineCall, view: SiteView, decision: Decision) -> Tensor:
    """Residual stream [B, S, H] after the branch."""
    site = view.site
    keep = None if decision.keep is None else decision.keep & call.valid
    branch = dense_attention if site.branch == "attention" else dense_mlp
    if call.recomputes and call.cache is None and "normed" not in view.__dict__:
        # The norm, which the method did not ask for, runs again too: what stays is in the residual stream anyway.
        own = replace(call, recomputes=False)

        def again(hidden: Tensor) -> Tensor:
            return branch(own, SiteView(site, hidden, own), keep)

        update: Tensor = checkpoint(again, view.hidden, use_reentrant=False)
    else:
        update = branch(call, view, keep)
    return add_update(call, site, view.hidden, update, decision.scale, None if decision.soft else keep)


def add_update(
    call: EngineCall, site: Site, hidden: Tensor, update: Tensor, scale: Tensor | None, keep: Tensor | None
) -> Tensor:
    """The residual stream [B, S, H] plus a branch's output, normalised, scaled and masked."""
    update = call.backbone.added(site, update)
    if scale is not None:
        update = update * scale.to(update.dtype)
        if keep is not None:
            update = update.masked_fill_(~keep[..., None], 0.0)  # in place: the product is nobody else's
    elif keep is not None:
        update = update.masked_fill(~keep[..., None], 0.0)
    return hidden + update


def dense_attention(call: EngineCall, view: SiteView, keep: Tensor | None) -> Tensor:
    """Attention output [B, S, H] of all tokens; the KV policy sees who skipped."""
    layer = view.site.layer
    evicted = keep is not None and call.kv_policy == "evict"
    keys = call.own_keys if call.cache is None else call.cache.expect(layer, Write(call.positions, call.valid, keep))
    visible = visible_keys(call.positions, keys, call.backbone.windows[layer]) if evicted else None
    mask = call.dense_mask(layer, keys) if visible is None else additive(visible, call.mask_type)
    # What writes into a cache must not run twice.
    run = _held(call, call.backbone.attention(layer)) if call.cache is None else call.backbone.attention(layer)
    rotary = call.rotary_of(layer)
    update, _ = run(view.read, position_embeddings=rotary, attention_mask=mask, past_key_values=call.cache)
    if visible is not None and call.training:
        # Of a token that skips and sees no key at all a softmax makes a mean of all keys, later ones too. A choice that
        # is soft would learn from it; it is nothing.
        update = update.masked_fill(~visible.any(dim=-1, keepdim=True), 0.0)
    if call.tally is not None:
        slots = call.tally.rows() * call.valid.shape[1]
        repairs = keep is not None and call.repairs_kv(layer)
        call.tally.attention(
            layer, keep, slots=slots, pairs=slots * keys.shape[1], repairs=repairs, visible=seen(call, layer)
        )
    return update


def dense_mlp(call: EngineCall, view: SiteView, keep: Tensor | None) -> Tensor:
    """MLP output [B, S, H] of all tokens; training leaves padding out, whose output nobody reads."""
    real = call.kept(None) if call.training else None
    if real is not None:
        update = _held(call, call.backbone.mlp(view.site.layer))(view.read_at(real.tokens))
        everything = update.new_zeros(call.valid.numel(), update.shape[-1])
        return everything.index_copy(0, real.tokens, update).view_as(view.hidden)
    if call.tally is not None:
        call.tally.mlp(view.site.layer, keep, slots=call.tally.rows() * call.valid.shape[1])
    return _held(call, call.backbone.mlp(view.site.layer))(view.read)


def _held(call: EngineCall, module: Any) -> Callable[..., Any]:
    """A branch's module; with gradient checkpointing it keeps its input alone and runs again in the backward pass.

    Decisions are outside: a method is asked once.
    """
    return partial(checkpoint, module, use_reentrant=False) if call.recomputes else module


def seen(call: EngineCall, layer: int) -> Tensor | None:
    """[B, S] keys each token sees where evicted ones are missing; `None` if it is what the dense model shows."""
    if call.kv_policy != "evict":
        return None
    assert call.cache is not None, "eviction always has a cache"
    if call.cache.is_complete(layer, call.valid.shape[1]):
        return None
    keys = call.cache.store(layer).table.visible()
    return visible_keys(call.positions, keys, call.backbone.windows[layer]).sum(dim=-1)
