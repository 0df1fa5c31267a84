"""The three executors of a branch, which give the same results.

* Masked: runs every token through every branch and discards the outputs of skipping tokens. Differentiable; saves
  nothing. It serves training, and as the reference for the packed executor. Its shapes do not depend on decisions, so
  it never waits for the device.
* Packed: gathers the kept tokens, computes only those, and puts the result back. For evaluation. Gathered tokens do not
  run through Hugging Face's modules but through the same arithmetic in `backbone.step`: one gather serves tokens that
  attend and tokens that only leave K,V, and query heads that share a key head need no copies of it. Packed branches
  never compute padding, unless keeping it lets attention run without a mask. If every token is kept, the branch is the
  dense one, bit for bit.
* Decode: the packed executor for one more token per row, as in generation, without the overhead of a general call. The
  linear maps are called directly, K,V of executing and skipping rows come from one projection and go straight into
  their slots, query heads that share a key head form one group, and masks are made once per call. Decisions and booked
  work are the same as in packed execution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from adaptive_bench.backbone import Site, Turn
from adaptive_bench.engine.engine_call import EngineCall, additive, visible_keys
from adaptive_bench.engine.flop_counter import BranchWork
from adaptive_bench.engine.kv_cache import Write
from adaptive_bench.engine.slots import Kept
from adaptive_bench.method import Decision, SiteView


def run_masked(call: EngineCall, view: SiteView, decision: Decision) -> Tensor:
    """Residual stream [B, S, H] after the branch."""
    site = view.site
    # A method may keep padding too; here it counts as skipped.
    keep = None if decision.keep is None else decision.keep & call.valid
    branch = _dense_attention if site.branch == "attention" else _dense_mlp
    if call.recomputes and call.cache is None and "normed" not in view.__dict__:
        # The method did not read the norm's output, so the norm is recomputed too: only the residual stream is kept.
        # The whole branch is one checkpoint, so its module gets none of its own.
        own = replace(call, recomputes=False)

        def again(hidden: Tensor) -> Tensor:
            return branch(own, SiteView(site, hidden, own), keep)

        update: Tensor = checkpoint(again, view.hidden, use_reentrant=False)
    else:
        update = branch(call, view, keep)
    return _add_update(call, site, view.hidden, update, decision.scale, None if decision.soft else keep)


def _add_update(
    call: EngineCall, site: Site, hidden: Tensor, update: Tensor, scale: Tensor | None, keep: Tensor | None
) -> Tensor:
    """The residual stream [B, S, H] plus a branch's output, normalised, scaled and masked."""
    update = call.backbone.added(site, update)
    if scale is not None:
        update = update * scale.to(update.dtype)
        if keep is not None:
            update = update.masked_fill_(~keep[..., None], 0.0)  # in place: nothing else refers to the product
    elif keep is not None:
        update = update.masked_fill(~keep[..., None], 0.0)
    return hidden + update


def _dense_attention(call: EngineCall, view: SiteView, keep: Tensor | None) -> Tensor:
    """Attention output [B, S, H] of all tokens; the KV policy is told which tokens skip."""
    layer = view.site.layer
    evicted = keep is not None and call.kv_policy == "evict"
    keys = call.own_keys if call.cache is None else call.cache.expect(layer, Write(call.positions, call.valid, keep))
    # Evicted tokens are hidden keys, for which `dense_mask` does not look where it finds that no mask is needed.
    visible = visible_keys(call.positions, keys, call.backbone.windows[layer]) if evicted else None
    mask = call.dense_mask(layer, keys) if visible is None else additive(visible, call.mask_type)
    # A module that writes into a cache must not run twice, so it is not checkpointed.
    run = _checkpointed(call, call.backbone.attention(layer)) if call.cache is None else call.backbone.attention(layer)
    rotary = call.rotary_of(layer)
    update, _ = run(view.read, position_embeddings=rotary, attention_mask=mask, past_key_values=call.cache)
    if visible is not None and call.training:
        # For a skipping token that sees no key, softmax gives the mean over all keys, including later ones. A soft
        # choice would learn from this output, so it is set to 0.
        update = update.masked_fill(~visible.any(dim=-1, keepdim=True), 0.0)
    if call.tally is not None:
        # Every slot runs through the maps and meets every key; what nobody needed becomes waste when it is booked.
        slots = call.tally.rows() * call.valid.shape[1]
        repairs = keep is not None and call.repairs_kv(layer)
        pairs = slots * keys.shape[1]
        call.tally.branches.append(BranchWork(layer, "attention", keep, slots, pairs, repairs, _seen(call, layer)))
    return update


def _dense_mlp(call: EngineCall, view: SiteView, keep: Tensor | None) -> Tensor:
    """MLP output [B, S, H] of all tokens; training skips padding, since its output is never read."""
    # Evaluation computes padding too, which the books then show as waste.
    real = call.kept(None) if call.training else None
    if real is not None:
        update = _checkpointed(call, call.backbone.mlp(view.site.layer))(view.read_at(real.tokens))
        everything = update.new_zeros(call.valid.numel(), update.shape[-1])
        return everything.index_copy(0, real.tokens, update).view_as(view.hidden)
    _note_mlp(call, view.site.layer, keep)
    return _checkpointed(call, call.backbone.mlp(view.site.layer))(view.read)


def _note_mlp(call: EngineCall, layer: int, keep: np.ndarray | Tensor | None) -> None:
    """Note an MLP for the ledger: a mask on the host was known before, so its tokens alone ran; else every slot did."""
    if call.tally is not None:
        everything = call.tally.rows() * call.valid.shape[1]
        slots = call.tally.weigh(keep) if isinstance(keep, np.ndarray) else everything
        call.tally.branches.append(BranchWork(layer, "mlp", keep, slots))


def _checkpointed(call: EngineCall, module: Any) -> Callable[..., Any]:
    """A branch's module. With gradient checkpointing it keeps only its input, and runs again in the backward pass.

    Decisions are outside the checkpoint, so the method is asked only once.
    """
    return partial(checkpoint, module, use_reentrant=False) if call.recomputes else module


def _seen(call: EngineCall, layer: int) -> Tensor | None:
    """[B, S] number of keys each token sees if evicted keys are missing; `None` if it is as in the dense model."""
    # Under `defer` nothing is missing: earlier tokens of a row go deep at the latest with the token that queries there.
    if call.kv_policy != "evict":
        return None
    assert call.cache is not None, "eviction always has a cache"
    if call.cache.is_complete(layer, call.valid.shape[1]):
        return None
    keys = call.cache.store(layer).table.visible()
    return visible_keys(call.positions, keys, call.backbone.windows[layer]).sum(dim=-1)


def run_packed(call: EngineCall, view: SiteView, decision: Decision) -> Tensor:
    """Residual stream [B, S, H] after the branch."""
    site, kept = view.site, call.kept(decision.keep)
    # `decision.keep is None` with `kept` set: every real token executes, and only padding is missing from the call.
    if kept is not None and site.branch == "attention" and decision.keep is None and _padding_is_harmless(call, site):
        kept = None  # causality hides the padding, so attention runs dense, and its kernel needs no mask
    if kept is None:
        update = _dense_attention(call, view, None) if site.branch == "attention" else _dense_mlp(call, view, None)
        return _add_update(call, site, view.hidden, update, decision.scale, None)
    packed = _packed_attention(call, view, kept) if site.branch == "attention" else _packed_mlp(call, view, kept)
    return view.hidden if packed is None else _add_packed(call, view, packed, decision.scale, kept)


def _padding_is_harmless(call: EngineCall, site: Site) -> bool:
    """Whether causality alone hides the padding: it stands only on the right, and no earlier token is cached."""
    # Caches that leave nothing give padding no slot, so a dense write of the whole call does not fit.
    first = call.cache is not None and not call.cache.leaves_nothing and call.cache.get_seq_length() == 0
    return first and call.pads_right_only and call.dense_mask(site.layer, call.own_keys) is None


def _add_packed(call: EngineCall, view: SiteView, update: Tensor, scale: Tensor | None, kept: Kept) -> Tensor:
    """The residual stream [B, S, H] plus a branch's output [N, H] for its kept tokens, normalised and scaled."""
    update = call.backbone.added(view.site, update)
    if scale is not None:
        update = update * scale.flatten(0, 1).index_select(0, kept.tokens).to(update.dtype)
    update = update.to(view.hidden.dtype)  # the dtypes differ under autocast, where the residual stream stays fp32
    return view.hidden.flatten(0, 1).index_add(0, kept.tokens, update).view_as(view.hidden)


def _packed_mlp(call: EngineCall, view: SiteView, kept: Kept | None) -> Tensor | None:
    """MLP output [N, H] of the N kept tokens, in a decode step perhaps all; `None` if there are none."""
    _note_mlp(call, view.site.layer, None if kept is None else kept.mask)
    if kept is not None and not kept.count:
        return None
    states = view.read[:, 0] if kept is None else view.read_at(kept.tokens)
    return call.backbone.step.mlp(call.backbone.mlp(view.site.layer), states)


def _packed_attention(call: EngineCall, view: SiteView, kept: Kept) -> Tensor | None:
    """Attention output [N, H] of the N kept tokens, in (row, position) order; `None` if there are none."""
    layer = view.site.layer
    assert call.cache is not None, "the packed executor always has a cache"
    step, attention = call.backbone.step, call.backbone.attention(layer)
    repairs = call.repairs_kv(layer)
    write = Write(call.positions, call.valid, kept=kept, repairs=repairs)
    keys = call.cache.expect(layer, write)
    # One gather for both kinds: tokens that attend (rectangle first), then those that only leave K,V.
    if repairs or kept.count:
        tokens = kept.read if repairs else kept.rectangle.flatten()
        states, turn = view.read_at(tokens), call.turns[layer].at(tokens)
        call.cache.write_packed(layer, *step.keys_and_values(attention, states, turn))
    else:
        call.cache.write_below(layer, call.valid.shape[1])
    if not kept.count:
        if call.tally is not None:
            call.tally.branches.append(BranchWork(layer, "attention", kept.mask, 0, repairs=repairs))
        return None

    chosen = kept.rectangle
    first = slice(chosen.numel())  # tokens that attend come before tokens that only leave K,V
    # Rows with fewer kept tokens than the widest are filled up with other tokens, whose outputs `filled` drops.
    queries = step.queries(attention, states[first], Turn(turn.cos[first], turn.sin[first]))
    mixed = step.attend_many(
        attention,
        queries.view(*chosen.shape, *queries.shape[1:]).transpose(1, 2),
        *call.cache.stored(layer, kept.rows, queries.dtype),
        call.mask(layer, call.positions.flatten()[chosen], keys),
    ).flatten(0, 1)
    if call.tally is not None:
        # The filling of the rectangle attends as well and is booked as waste.
        slots = kept.width * call.tally.rows(kept.host_rows)
        work = BranchWork(layer, "attention", kept.mask, slots, slots * keys.shape[1], repairs, _seen(call, layer))
        call.tally.branches.append(work)
    return step.linear(attention.o_proj, mixed).index_select(0, kept.filled)


def run_decode(call: EngineCall, view: SiteView, decision: Decision) -> Tensor:
    """Residual stream [B, 1, H] after the branch."""
    if call.fixed_shapes and call.reads(decision.keep):
        return _decode_all(call, view, decision)
    kept = call.kept(decision.keep)
    update = (_decode_attention if view.site.branch == "attention" else _packed_mlp)(call, view, kept)
    if update is None:
        return view.hidden
    if kept is None:
        return _add_update(call, view.site, view.hidden, update[:, None], decision.scale, None)
    return _add_packed(call, view, update, decision.scale, kept)


def _decode_all(call: EngineCall, view: SiteView, decision: Decision) -> Tensor:
    """Residual stream [B, 1, H] after the branch ran for every row, so that the host need not wait for decisions."""
    assert decision.keep is not None
    # Rows of padding run as well, but do not count as executing.
    keep = decision.keep if call.all_valid else decision.keep & call.valid
    layer = view.site.layer
    if view.site.branch == "attention":
        update = _attention_of_all(call, view, keep)
    else:
        _note_mlp(call, layer, keep)
        update = call.backbone.step.mlp(call.backbone.mlp(layer), view.read[:, 0])
    return _add_update(call, view.site, view.hidden, update[:, None], decision.scale, keep)


def _attention_of_all(call: EngineCall, view: SiteView, keep: Tensor) -> Tensor:
    """Attention output [B, H] of all rows; the KV policy is told which rows skip."""
    assert call.cache is not None, "decoding always has a cache"
    layer = view.site.layer
    step, attention = call.backbone.step, call.backbone.attention(layer)
    queries, keys, values = step.project(attention, view.read[:, 0], call.turns[layer])
    store = call.cache.write_step_of_all(layer, call.positions, keep, keys, values)
    stored_keys, stored_values = (part.to(queries.dtype) for part in store.view())
    mixed = step.attend(attention, queries, stored_keys, stored_values, _decode_mask(call, layer))
    if call.tally is not None:
        slots, repairs = call.tally.rows(), call.repairs_kv(layer)
        pairs = slots * store.table.used
        work = BranchWork(layer, "attention", keep, slots, pairs, repairs, _seen(call, layer), of_all=True)
        call.tally.branches.append(work)
    return step.linear(attention.o_proj, mixed)


def _decode_attention(call: EngineCall, view: SiteView, kept: Kept | None) -> Tensor | None:
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
    else:  # no row executes and nothing is projected: only the policy decides what is stored
        call.cache.write_below(layer, 1)
        _note_attention(call, layer, kept, [], repairs=False)
        return None
    store = call.cache.write_step(layer, call.positions, kept, keys, values)
    if kept is not None and not kept.count:
        _note_attention(call, layer, kept, [], repairs=repairs)
        return None

    # Attention: over ranges of rows, whose K,V are views of the buffers.
    attending = _row_ranges(call, kept)
    mask = _decode_mask(call, layer)
    stored_keys, stored_values = (part.to(queries.dtype) for part in store.view())
    if kept is not None:  # place queries at their rows, since attention runs over ranges of rows
        queries = queries.new_zeros(call.valid.shape[0], *queries.shape[1:]).index_copy(0, kept.tokens, queries)
    parts = []
    for start, end in attending:
        rows = slice(start, end)
        seen_by = None if mask is None else mask[rows]
        parts.append(step.attend(attention, queries[rows], stored_keys[rows], stored_values[rows], seen_by))
    mixed = parts[0] if len(parts) == 1 else torch.cat(parts)
    if kept is not None:
        mixed = mixed.index_select(0, _places(call, kept, attending))
    _note_attention(call, layer, kept, attending, repairs=repairs and kept is not None)
    return step.linear(attention.o_proj, mixed)


def _decode_mask(call: EngineCall, layer: int) -> Tensor | None:
    """Additive mask [B, 1, 1, T] over the layer's slots; `None` if every row sees all of them."""
    assert call.cache is not None
    table, window = call.cache.store(layer).table, call.backbone.windows[layer]
    sparse = call.cache.leaves_nothing  # even a few keys may then lie further apart than the window
    if not table.has_hidden and (window is None or (table.used < window and not sparse)):
        return None
    if sparse:
        return call.mask(layer, call.positions, table.visible())
    return call.shared_mask(window, table.visible())


def _row_ranges(call: EngineCall, kept: Kept | None) -> list[tuple[int, int]]:
    """Ranges of rows [start, end) that attend. Ranges are views of the buffers, while copying the K,V of scattered rows
    would cost twice as much as attending. A single skipping row between two executing rows attends too, since that
    costs no more than another call.
    """
    everybody = [(0, call.valid.shape[0])]
    if kept is None or call.valid.device.type != "cpu":
        return everybody
    rows = kept.host_tokens
    # A difference of 2 is a single skipping row in between, which stays in the range.
    breaks = np.flatnonzero(np.diff(rows) > 2)
    starts, ends = [0, *(breaks + 1)], [*breaks, len(rows) - 1]
    return [(int(rows[start]), int(rows[end]) + 1) for start, end in zip(starts, ends, strict=True)]


def _places(call: EngineCall, kept: Kept, attending: list[tuple[int, int]]) -> Tensor:
    """The places [N] of the executing rows among the attending rows, whose ranges are concatenated."""
    # One range that begins at row 0: places and rows are the same numbers.
    if len(attending) == 1 and attending[0][0] == 0:
        return kept.tokens
    places = np.concatenate([np.arange(start, end) for start, end in attending])
    return torch.from_numpy(np.searchsorted(places, kept.host_tokens)).to(call.valid.device)


def _note_attention(
    call: EngineCall, layer: int, kept: Kept | None, attending: list[tuple[int, int]], *, repairs: bool
) -> None:
    """Note the branch for the ledger; rows that attended without executing are waste."""
    if call.tally is None:
        return
    assert call.cache is not None
    slots = call.tally.rows() if kept is None else call.tally.weigh(kept.mask)
    rows = sum(call.tally.rows(np.arange(start, end)) for start, end in attending)
    pairs = rows * call.cache.store(layer).table.used
    visible = _seen(call, layer) if attending else None
    mask = None if kept is None else kept.mask  # on the host already, so the books wait for nothing
    call.tally.branches.append(BranchWork(layer, "attention", mask, slots, pairs, repairs, visible))
