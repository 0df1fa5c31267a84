"""Executes spared sites for all tokens, and everything for the first token of a text where a method keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from adaptive_bench.engine.call import EngineCall
from adaptive_bench.method import EXECUTE_ALL, Decision, Method, SiteView


def spared_ahead(method: Method, call: EngineCall, ahead: Sequence[Decision]) -> list[Decision]:
    """Decisions that are known before the layers run, as they are executed. Sites that share a mask still do."""
    spared = {site.number for site in method.spared}
    each = 1 if method.unit == "branch" else 2  # sites that a decision stands for
    found: dict[int, Decision] = {}
    for decision in ahead:
        found.setdefault(id(decision.keep), with_first(method, call, Decision(decision.keep)))
    return [
        EXECUTE_ALL
        if each * place in spared
        else decision
        if found[id(decision.keep)].keep is decision.keep
        else replace(decision, keep=found[id(decision.keep)].keep, nobody=False)
        for place, decision in enumerate(ahead)
    ]


def with_first(method: Method, call: EngineCall, decision: Decision) -> Decision:
    """The decision with the first token of every text among those that execute, if the method keeps it."""
    if not method.keep_first or call.only_follows:
        return decision
    if decision.keep is not None:
        if call.ahead is not None and any(decision.keep is one.keep for one in call.ahead):
            return decision
        decision = replace(decision, keep=decision.keep | call.first, nobody=False)
    if not call.training or decision.scale is None or not (decision.keep is None or decision.soft):
        return decision
    # A choice with a gradient, which is 0 where a token skips; a gate is not.
    first = call.first[..., None]
    scale = torch.where(first & (decision.scale.detach() == 0), 1.0, decision.scale)
    otherwise = decision.otherwise
    if decision.keep is not None or otherwise is None:
        return replace(decision, scale=scale)

    def instead(tokens: Tensor) -> Tensor:
        assert otherwise is not None
        output: Tensor = otherwise(tokens)
        return output.masked_fill(first.flatten(0, 1).index_select(0, tokens), 0.0)

    return replace(decision, scale=scale, otherwise=instead)


def pass_over(method: Method, view: SiteView) -> Decision:
    """What is executed at a spared site: nobody is asked, and nothing is booked as a decision."""
    method.pass_over(view)
    for listen in method.listeners:
        listen(view, EXECUTE_ALL)
    return EXECUTE_ALL
