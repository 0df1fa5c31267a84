"""Listens to a method's decisions while a model runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from adaptive_bench.method import Decision, Method, Site, SiteView


@contextmanager
def recorded_decisions(method: Method) -> Iterator[list[tuple[Site, Decision]]]:
    """The list fills with every (site, decision) of the calls inside the block, in execution order.

    Padding is never kept, whatever the decision says of it.
    """
    decisions: list[tuple[Site, Decision]] = []

    def listen(view: SiteView, decision: Decision) -> None:
        keep = view.call.valid if decision.keep is None else decision.keep & view.call.valid
        decisions.append((view.site, replace(decision, keep=keep)))

    method.listeners.append(listen)
    try:
        yield decisions
    finally:
        method.listeners.remove(listen)
