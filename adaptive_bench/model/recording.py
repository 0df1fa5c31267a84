"""Listens to a method's decisions while a model runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from adaptive_bench.engine.call import SiteView
from adaptive_bench.model.backbone import Site
from adaptive_bench.model.decisions import Decision
from adaptive_bench.model.method import Method


@contextmanager
def recorded_decisions(method: Method) -> Iterator[list[tuple[Site, Decision]]]:
    """The list fills with every (site, decision) of the calls inside the block, in execution order.

    Padding is never kept, whatever the decision says of it.
    """
    decisions: list[tuple[Site, Decision]] = []
    decide = method.decide

    def listen(view: SiteView) -> Decision:
        decision = decide(view)
        keep = view.call.valid if decision.keep is None else decision.keep & view.call.valid
        decisions.append((view.site, Decision(keep, decision.scale, decision.input_scale)))
        return decision

    method.decide = listen  # type: ignore[method-assign]  # on this object alone, in front of its class's
    try:
        yield decisions
    finally:
        del method.decide
