"""Runs one forward pass through all branches: ask the method, run the branch, move on.

`Decision.otherwise`, which replaces a branch for skipping tokens, is called after the branch has run. It is called for
the skipping tokens only, unless shapes must not depend on decisions (masked executor, decode steps on an accelerator).
Then it is called for every slot of the call, and its results for the other slots are discarded and booked as waste.

Under the KV policy `defer`, tokens that leave early wait, and run through the deep layers together with the next token
that stays: FREE's synchronized parallel decoding. A waiting token has no K,V in the deep layers and needs none, since
no token queries there before the flush; at the flush it gets exactly the K,V of a full-depth pass. Tokens that still
wait when the text ends never go deep. Every row of a batch waits and flushes independently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from adaptive_bench.backbone import BRANCHES, Site
from adaptive_bench.engine.engine_call import EngineCall
from adaptive_bench.engine.executors import run_decode, run_masked, run_packed
from adaptive_bench.errors import UsageError
from adaptive_bench.method import EXECUTE_ALL, Decision, Method, SiteView
from adaptive_bench.method.decisions import check_ahead, check_decision, check_instead


def run_layers(method: Method, call: EngineCall, hidden: Tensor, layers: range | None = None) -> Tensor:
    """Run all layers, or a range of them, on hidden states [B, S, H]; returns the residual stream after them."""
    if call.tally is not None:
        call.tally.book_dense()
    if call.cache is not None:
        # Before any branch: under most policies all layers write into the slots that are added here.
        call.cache.begin(call.positions, call.valid, padded=not call.all_valid)
    if (ahead := method.decide_ahead(call)) is not None:
        # Always for all layers, even if only a range of them runs: sites look their decision up by number.
        check_ahead(ahead, call.backbone.num_layers * (len(BRANCHES) if method.unit == "branch" else 1), method)
        if method.spared or method.keep_first:
            ahead = spared_ahead(method, call, ahead)
    call.foresee(ahead)
    layers = range(call.backbone.num_layers) if layers is None else layers
    if call.kv_policy != "defer":
        return _run(method, call, hidden, layers)
    # Deep layers run without asking the method: who stays at `defer_layer` executes all of them.
    shallow, deep = layers[: method.defer_layer], layers[method.defer_layer :]
    hidden = _run(method, call, hidden, shallow)
    decision = decide(method, call, SiteView(Site(method.defer_layer, "layer"), hidden, call))
    return run_deferred(call, hidden, decision.keep, deep, lambda later, states: _run(None, later, states, deep))


def run_prescribed(call: EngineCall, hidden: Tensor, decisions: Sequence[Decision]) -> Tensor:
    """Residual stream [B, S, H] after all layers with given decisions, one per layer, without asking a method."""
    if call.cache is not None:
        call.cache.begin(call.positions, call.valid, padded=not call.all_valid)
    for layer, decision in enumerate(decisions):
        for branch in BRANCHES:
            hidden = run_masked(call, SiteView(Site(layer, branch), hidden, call), decision)
    return hidden


def _run(method: Method | None, call: EngineCall, hidden: Tensor, layers: range) -> Tensor:
    """Run a range of layers; without a method every real token executes everything."""
    run_branch = run_decode if call.decodes else run_packed if call.executor == "packed" else run_masked
    for layer in layers:
        if method is None or method.unit == "branch":
            for branch in BRANCHES:
                view = SiteView(Site(layer, branch), hidden, call)
                decision = EXECUTE_ALL if method is None else decide(method, call, view)
                hidden = run_branch(call, view, decision)
                if decision.otherwise is not None:
                    hidden = add_instead(method, call, view, hidden, decision)
        else:
            start = hidden
            whole = SiteView(Site(layer, "layer"), hidden, call)
            decision = decide(method, call, whole)
            # The scale is for the layer's whole update, so the branches run unscaled.
            kept = Decision(decision.keep, soft=decision.soft)
            for branch in BRANCHES:
                hidden = run_branch(call, SiteView(Site(layer, branch), hidden, call), kept)
            if decision.scale is not None:  # multiplies the update of the whole layer; lerp is exact at 0 and at 1
                hidden = torch.lerp(start, hidden, decision.scale.to(hidden.dtype))
            if decision.otherwise is not None:
                hidden = add_instead(method, call, whole, hidden, decision)
        if call.layer_states is not None:
            call.layer_states.append(hidden)
    return hidden


def decide(method: Method, call: EngineCall, view: SiteView) -> Decision:
    """The method's decision at a site. The cost of its linear maps is metered here, not reported by the method. At a
    spared site the method is not asked, and every token executes.
    """
    if method.spared and method.is_spared(view.site):
        method.pass_over(view)
        for listen in method.listeners:
            listen(view, EXECUTE_ALL)
        return EXECUTE_ALL
    call.meter.take()  # discard readings from before: they are no part of this decision
    runs, answers = 0 if call.tally is None else len(call.tally.runs), len(call.answers)
    device = view.hidden.device.type
    autocasts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if autocasts:  # a difference of 1e-3 can change a decision, so methods never decide in bf16
        with torch.autocast(device, enabled=False):
            decision = method.decide(view)
    else:
        decision = method.decide(view)
    if call.tally is not None:
        for reading in call.meter.take():
            call.tally.book_decision(view.site.layer, reading)
    check_decision(decision, view.hidden, method)
    # Before `pass_on`, so that a collector records what executes; and after it, as a bank may skip first tokens.
    decision = with_first(method, call, decision)
    if call.between is not None:
        decision = with_first(method, call, call.between.pass_on(view, decision, call.take_effort(runs, answers)))
    # Listeners hear what is executed, and before `scale_input` changes the view.
    for listen in method.listeners:
        listen(view, decision)
    if decision.input_scale is not None:
        if view.site.branch == "layer":
            raise UsageError(
                f"Decision.input_scale is for methods that decide per branch, got it for layer {view.site.layer} as a "
                f"whole from {type(method).__name__}. Leave it out, or set unit = 'branch'."
            )
        view.scale_input(decision.input_scale)
    if decision.otherwise is not None and call.kv_policy == "defer":
        raise UsageError(
            f"Decision.otherwise is for tokens that skip a branch and go on, got it from {type(method).__name__} with "
            "the KV policy 'defer', under which they wait. Leave it out, or choose another policy."
        )
    return decision


def spared_ahead(method: Method, call: EngineCall, ahead: Sequence[Decision]) -> list[Decision]:
    """Decisions known before the layers run, adjusted for spared sites and first tokens. Shared masks stay shared."""
    spared = {site.number for site in method.spared}
    each = 1 if method.unit == "branch" else 2  # number of sites per decision
    masks: dict[int, Tensor | None] = {}
    adjusted = []
    for place, decision in enumerate(ahead):
        # One adjusted mask per given mask: the host then reads as few masks as before.
        if id(decision.keep) not in masks:
            masks[id(decision.keep)] = with_first(method, call, Decision(decision.keep)).keep
        keep = masks[id(decision.keep)]
        if each * place in spared:
            adjusted.append(EXECUTE_ALL)
        elif keep is decision.keep:  # `with_first` left it unchanged, so `nobody` still holds
            adjusted.append(decision)
        else:
            adjusted.append(replace(decision, keep=keep, nobody=False))
    return adjusted


def with_first(method: Method, call: EngineCall, decision: Decision) -> Decision:
    """The decision with the first token of every text executing too, if the method keeps first tokens."""
    if not method.keep_first or call.only_follows:
        return decision
    if decision.keep is not None:
        # Already adjusted, in `spared_ahead`.
        if call.ahead is not None and any(decision.keep is one.keep for one in call.ahead):
            return decision
        decision = replace(decision, keep=decision.keep | call.first, nobody=False)
    if not call.training or decision.scale is None or not (decision.keep is None or decision.soft):
        return decision
    # The scale is a choice with a gradient, 0 for skipping tokens (a gate is never 0): set it to 1 for first tokens.
    first = call.first[..., None]
    scale = torch.where(first & (decision.scale.detach() == 0), 1.0, decision.scale)
    otherwise = decision.otherwise
    if decision.keep is not None or otherwise is None:
        return replace(decision, scale=scale)

    def instead(tokens: Tensor) -> Tensor:
        assert otherwise is not None
        output: Tensor = otherwise(tokens)
        # A first token runs its branch with scale 1, so it gets nothing of the replacement.
        return output.masked_fill(first.flatten(0, 1).index_select(0, tokens), 0.0)

    return replace(decision, scale=scale, otherwise=instead)


def add_instead(method: Method | None, call: EngineCall, view: SiteView, hidden: Tensor, decision: Decision) -> Tensor:
    """The stream [B, S, H] after a branch, with `decision.otherwise` added for tokens that skipped it; `hidden` is the
    stream without that.
    """
    keep = decision.keep
    if keep is None:
        if not call.training:
            return hidden
        # A soft choice: every token executes, and gets its share of `otherwise` too.
        return _added(hidden, call.real, _ask(method, call, view, decision, call.real, None))
    if call.executor == "masked" or (call.fixed_shapes and call.reads(keep)):
        # All slots are computed, so that the shape does not depend on the decision.
        skipped = ~keep & call.valid
        update = _ask(method, call, view, decision, call.slots, skipped)
        return hidden + update.view_as(hidden).masked_fill(~skipped[..., None], 0.0)
    kept = call.kept(keep)
    if kept is None or not kept.host_skipped.size:
        return hidden
    return _added(hidden, kept.skipped, _ask(method, call, view, decision, kept.skipped, None))


def _added(hidden: Tensor, tokens: Tensor, update: Tensor) -> Tensor:
    return hidden.flatten(0, 1).index_add(0, tokens, update).view_as(hidden)


def _ask(
    method: Method | None, call: EngineCall, view: SiteView, decision: Decision, tokens: Tensor, among: Tensor | None
) -> Tensor:
    """Call `decision.otherwise` for the tokens at flat indices [N] and book it; `among` as in `flop_counter.Run`."""
    assert decision.otherwise is not None
    call.meter.take()  # discard readings from before: they are no part of this call
    update = decision.otherwise(tokens)
    readings = call.meter.take()
    if call.tally is not None:
        for reading in readings:
            call.tally.book_map(view.site.layer, reading, tokens, among, "overhead.adapter")
    check_instead(update, tokens.numel(), view.hidden.shape[-1], method)
    return update.to(view.hidden.dtype)


_STATES, _POSITIONS = "deferred_states", "deferred_positions"


def run_deferred(
    call: EngineCall,
    hidden: Tensor,
    keep: Tensor | None,
    layers: range,
    run_deep: Callable[[EngineCall, Tensor], Tensor],
) -> Tensor:
    """Final residual stream [B, S, H]: the deep state for tokens that stay, the exit state for tokens that left.

    Args:
        hidden: [B, S, H] before the deep layers, which `run_deep` runs for a call.
        keep: [B, S] tokens that do not leave here; `None` for all.
    """
    # Who waits and who goes deep, in the columns of the waiting tokens followed by the call's own.
    states, positions = _join_waiting(call, hidden)
    waiting_before = states.shape[1] - hidden.shape[1]
    stays = call.valid if keep is None else keep
    read = torch.cat([positions, stays.to(positions.dtype)], dim=1).cpu().numpy()  # both with one read from the device
    host_positions, staying = read[:, : states.shape[1]], read[:, states.shape[1] :].astype(bool) & call.host_valid
    joined = np.concatenate([np.zeros((len(staying), waiting_before), dtype=bool), staying], axis=1)
    # a token goes deep now if it or any later one of its row stays
    goes = np.flip(np.flip(joined, axis=1).cumsum(axis=1) > 0, axis=1) & (host_positions >= 0)
    _remember_waiting(call, states, positions, (host_positions >= 0) & ~goes)

    # Pack the tokens that go deep into a rectangle on the left of every row, and run the deep layers on it.
    columns = _columns(goes)
    if not columns.shape[1]:
        if call.tally is not None:
            call.tally.book_idle(layers)
        return hidden
    valid, chosen = np.take_along_axis(goes, columns, axis=1), _put(columns, hidden)
    deep_positions = np.take_along_axis(host_positions, columns, axis=1).clip(min=0)
    packed_positions, real = _put(deep_positions, hidden), _put(valid, hidden)
    deep = replace(
        call,
        valid=real,
        host_valid=valid,
        positions=packed_positions,
        # No method is asked below, so nobody reads prompts or ids.
        continuation=torch.zeros_like(real),
        input_ids=torch.zeros_like(chosen),
        rotary=call.backbone.rotary(hidden, packed_positions),
        # Only these tokens run, but all of the call count as eligible.
        tally=None if call.tally is None else call.tally.part(valid, deep_positions),
        ahead=None,
        _kept=None,
        _masks={},
    )
    places = chosen[..., None].expand(-1, -1, states.shape[-1])
    before = states.gather(1, places)
    out = run_deep(deep, before)
    if deep.tally is not None:
        deep.tally.settle()
    # Back to their columns. A row's columns are distinct, so filling writes its own state back and harms nobody.
    everything = states.scatter(1, places, torch.where(real[..., None], out, before))
    # Only tokens that stay take their deep state: the others went deep to leave K,V, and keep the state of their exit.
    return torch.where(_put(staying, hidden)[..., None], everything[:, waiting_before:], hidden)


def _join_waiting(call: EngineCall, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Waiting tokens, then the call's own: states [B, W + S, H], positions [B, W + S] (-1 means no token)."""
    state = call.session.state
    if _STATES not in state:
        return hidden, call.own_keys
    return torch.cat([state[_STATES], hidden], dim=1), torch.cat([state[_POSITIONS], call.own_keys], dim=1)


def _remember_waiting(call: EngineCall, states: Tensor, positions: Tensor, waits: np.ndarray) -> None:
    columns = _columns(waits)
    chosen = _put(columns, states)
    waiting = positions.gather(1, chosen)
    call.session.state[_STATES] = states.gather(1, chosen[..., None].expand(-1, -1, states.shape[-1]))
    call.session.state[_POSITIONS] = waiting.masked_fill(~_put(np.take_along_axis(waits, columns, axis=1), states), -1)


def _columns(chosen: np.ndarray) -> np.ndarray:
    """Columns [B, N] that hold every row's chosen tokens first, in order; N is the longest row's count."""
    width = int(chosen.sum(axis=1).max(initial=0))
    # Stable, so that chosen tokens stay in order: positions must ascend in every row.
    return np.argsort(~chosen, axis=1, kind="stable")[:, :width]


def _put(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like.device)
