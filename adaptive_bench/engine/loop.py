"""One forward pass through all branches: ask the method, run the branch, move on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from adaptive_bench.backbone import Branch, Site
from adaptive_bench.engine import decode, masked, packed
from adaptive_bench.engine.call import EngineCall
from adaptive_bench.engine.deferral import run_deferred
from adaptive_bench.engine.otherwise import add_instead
from adaptive_bench.engine.sparing import pass_over, spared_ahead, with_first
from adaptive_bench.errors import UsageError
from adaptive_bench.method import EXECUTE_ALL, Decision, Method, SiteView
from adaptive_bench.method.answers import check_ahead, check_decision

_BRANCHES: tuple[Branch, ...] = ("attention", "mlp")


def run_layers(method: Method, call: EngineCall, hidden: Tensor, layers: range | None = None) -> Tensor:
    """Residual stream [B, S, H] from the embedding to the final norm, or from before some layers to after them."""
    if call.tally is not None:
        call.tally.book_dense()
    if call.cache is not None:
        call.cache.begin(call.positions, call.valid, padded=not call.all_valid)
    if (ahead := method.decide_ahead(call)) is not None:
        check_ahead(ahead, call.backbone.num_layers * (len(_BRANCHES) if method.unit == "branch" else 1), method)
        if method.spared or method.keep_first:
            ahead = spared_ahead(method, call, ahead)
    call.foresee(ahead)
    layers = range(call.backbone.num_layers) if layers is None else layers
    if call.kv_policy != "defer":
        return _run(method, call, hidden, layers)
    shallow, deep = layers[: method.defer_layer], layers[method.defer_layer :]
    hidden = _run(method, call, hidden, shallow)
    decision = decide(method, call, SiteView(Site(method.defer_layer, "layer"), hidden, call))
    return run_deferred(call, hidden, decision.keep, deep, lambda later, states: _run(None, later, states, deep))


def run_prescribed(call: EngineCall, hidden: Tensor, decisions: Sequence[Decision]) -> Tensor:
    """Residual stream [B, S, H] after all layers, each of which runs as decided for it before; nobody is asked."""
    if call.cache is not None:
        call.cache.begin(call.positions, call.valid, padded=not call.all_valid)
    for layer, decision in enumerate(decisions):
        for branch in _BRANCHES:
            hidden = masked.run_branch(call, SiteView(Site(layer, branch), hidden, call), decision)
    return hidden


def _run(method: Method | None, call: EngineCall, hidden: Tensor, layers: range) -> Tensor:
    """Some layers; without a method every real token executes everything."""
    run_branch = (decode if call.decodes else packed if call.executor == "packed" else masked).run_branch
    for layer in layers:
        if method is None or method.unit == "branch":
            for branch in _BRANCHES:
                view = SiteView(Site(layer, branch), hidden, call)
                decision = EXECUTE_ALL if method is None else decide(method, call, view)
                hidden = run_branch(call, view, decision)
                if decision.otherwise is not None:
                    hidden = add_instead(method, call, view, hidden, decision)
        else:
            start = hidden
            whole = SiteView(Site(layer, "layer"), hidden, call)
            decision = decide(method, call, whole)
            kept = Decision(decision.keep, soft=decision.soft)
            for branch in _BRANCHES:
                hidden = run_branch(call, SiteView(Site(layer, branch), hidden, call), kept)
            if decision.scale is not None:  # it multiplies the update of the whole block; lerp is exact at 0 and at 1
                hidden = torch.lerp(start, hidden, decision.scale.to(hidden.dtype))
            if decision.otherwise is not None:
                hidden = add_instead(method, call, whole, hidden, decision)
        if call.layer_states is not None:
            call.layer_states.append(hidden)
    return hidden


def decide(method: Method, call: EngineCall, view: SiteView) -> Decision:
    """The method's decision; what its linear maps cost is metered here, not told by the method. At a spared site it is
    not asked.

    Raises:
        PluginFault: It is no decision about these tokens.
        UsageError: It scales the input of a whole layer, which has none of its own, or gives something to tokens that
            do not pass the layer but wait.
    """
    if method.spared and method.is_spared(view.site):
        return pass_over(method, view)
    call.meter.take()  # whatever ran since does not count as deciding here
    runs, answers = 0 if call.tally is None else call.tally.runs, len(call.answers)
    device = view.hidden.device.type
    autocasts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if autocasts:  # decisions hinge on 1e-3: never in bf16
        with torch.autocast(device, enabled=False):
            decision = method.decide(view)
    else:
        decision = method.decide(view)
    if call.tally is not None:
        for reading in call.meter.take():
            call.tally.book_decision(view.site.layer, reading)
    check_decision(decision, view.hidden, method)
    decision = with_first(method, call, decision)
    if call.between is not None:
        decision = with_first(method, call, call.between.pass_on(view, decision, call.take_effort(runs, answers)))
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
