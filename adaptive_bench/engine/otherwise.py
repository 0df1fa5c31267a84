"""What tokens that do not execute a branch get instead (`Decision.otherwise`), the same for all executors.

Asked after the branch has run. Where shapes may depend on decisions it is asked for the tokens that skipped alone;
where they may not (the masked executor, decode steps on an accelerator) for every slot of the call, and what it says of
the others is thrown away and booked as waste.
"""

from __future__ import annotations

from torch import Tensor

from adaptive_bench.engine.call import EngineCall
from adaptive_bench.method import Decision, Method, SiteView
from adaptive_bench.method.answers import check_instead


def add_instead(method: Method | None, call: EngineCall, view: SiteView, hidden: Tensor, decision: Decision) -> Tensor:
    """The residual stream [B, S, H] after a branch, with what tokens that skipped it get instead.

    Args:
        hidden: After the branch, in which they stand unchanged.
    """
    keep = decision.keep
    if keep is None:
        return _mixed(method, call, view, hidden, decision) if call.training else hidden
    if call.executor == "masked" or (call.fixed_shapes and call.reads(keep)):
        skipped = ~keep & call.valid
        update = _ask(method, call, view, decision, call.slots, skipped)
        return hidden + update.view_as(hidden).masked_fill(~skipped[..., None], 0.0)
    kept = call.kept(keep)
    if kept is None or not kept.host_skipped.size:
        return hidden
    return _added(hidden, kept.skipped, _ask(method, call, view, decision, kept.skipped, None))


def _mixed(method: Method | None, call: EngineCall, view: SiteView, hidden: Tensor, decision: Decision) -> Tensor:
    """A soft choice of a training call: everybody executes, and gets its share of this as well."""
    return _added(hidden, call.real, _ask(method, call, view, decision, call.real, None))


def _added(hidden: Tensor, tokens: Tensor, update: Tensor) -> Tensor:
    return hidden.flatten(0, 1).index_add(0, tokens, update).view_as(hidden)


def _ask(
    method: Method | None, call: EngineCall, view: SiteView, decision: Decision, tokens: Tensor, among: Tensor | None
) -> Tensor:
    """What is added to the tokens at flat indices [N], in the residual stream's type; `among` as in `booking.Run`."""
    assert decision.otherwise is not None
    call.meter.take()  # whatever ran since is none of it
    update = decision.otherwise(tokens)
    readings = call.meter.take()
    if call.tally is not None:
        for reading in readings:
            call.tally.book_instead(view.site.layer, reading, tokens, among)
    check_instead(update, tokens.numel(), view.hidden.shape[-1], method)
    return update.to(view.hidden.dtype)
