"""One forward pass through all branches: ask the method, run the branch, move on."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from adaptive_bench.engine import masked, packed
from adaptive_bench.engine.booking import book_dense
from adaptive_bench.engine.call import ForwardCall, SiteView
from adaptive_bench.engine.deferral import run_deferred
from adaptive_bench.errors import UsageError
from adaptive_bench.model.backbone import Branch, Site
from adaptive_bench.model.decisions import EXECUTE_ALL, Decision

if TYPE_CHECKING:
    from adaptive_bench.model.method import Method

_BRANCHES: tuple[Branch, ...] = ("attention", "mlp")


def run_layers(method: Method, call: ForwardCall, hidden: Tensor) -> Tensor:
    """Residual stream [B, S, H] from the embedding to the final norm."""
    book_dense(call)
    layers = range(call.backbone.num_layers)
    if call.kv_policy != "defer":
        return _run(method, call, hidden, layers)
    shallow, deep = layers[: method.defer_layer], layers[method.defer_layer :]
    hidden = _run(method, call, hidden, shallow)
    decision = decide(method, SiteView(Site(method.defer_layer, "layer"), hidden, call))
    stays = call.valid if decision.keep is None else decision.keep & call.valid
    return run_deferred(call, hidden, stays, deep, lambda later, states: _run(None, later, states, deep))


def _run(method: Method | None, call: ForwardCall, hidden: Tensor, layers: range) -> Tensor:
    """Some layers; without a method every real token executes everything."""
    run_branch = packed.run_branch if call.packed else masked.run_branch
    for layer in layers:
        if method is None or method.unit == "branch":
            for branch in _BRANCHES:
                view = SiteView(Site(layer, branch), hidden, call)
                decision = EXECUTE_ALL if method is None else decide(method, view)
                hidden = run_branch(view.site, view, decision)
        else:
            start = hidden
            decision = decide(method, SiteView(Site(layer, "layer"), hidden, call))
            for branch in _BRANCHES:
                view = SiteView(Site(layer, branch), hidden, call)
                hidden = run_branch(view.site, view, Decision(decision.keep))
            if decision.scale is not None:  # the scale multiplies the update of the whole block
                hidden = start + decision.scale.to(hidden.dtype) * (hidden - start)
        if call.layer_states is not None:
            call.layer_states.append(hidden)
    return hidden


def decide(method: Method, view: SiteView) -> Decision:
    """The method's decision; what its linear maps cost is metered here, not told by the method.

    Raises:
        UsageError: It scales the input of a whole layer, which has none of its own.
    """
    call = view.call
    before = call.meter.macs
    with torch.autocast(view.hidden.device.type, enabled=False):  # decisions hinge on 1e-3: never in bf16
        decision = method.decide(view)
    if call.ledger is not None:
        macs = call.meter.macs - before
        real = macs * call.num_valid // call.valid.numel()
        call.ledger.book(call.phase, view.site.layer, "overhead.decision", real)
        call.ledger.book(call.phase, view.site.layer, "waste.dense", macs - real)
    if decision.input_scale is not None:
        if view.site.branch == "layer":
            raise UsageError(
                f"Decision.input_scale is for methods that decide per branch, got it for layer {view.site.layer} as a "
                f"whole from {type(method).__name__}. Leave it out, or set unit = 'branch'."
            )
        view.normed = view.normed * decision.input_scale.to(view.normed.dtype)
    return decision


class DecisionMeter:
    """Counts the MACs of every `nn.Linear` inside a method, whoever calls it."""

    def __init__(self, method: nn.Module) -> None:
        self.macs = 0
        for module in method.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(self._count)

    def _count(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.macs += inputs[0].numel() * cast(nn.Linear, module).out_features
