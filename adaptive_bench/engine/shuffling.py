"""The control of shuffled decisions: a method's own model in which every token gets the decisions of some other token.

A bank holds the whole decision vectors of tokens of held-out text: for all sites of one token whether it executed the
branch, and what was run in order to decide. Replayed, every token draws one of them at random. So each site skips as
often as the method lets it, a token that exits skips everything above, and probes cost what they cost the method;
only *which* token skips has nothing to do with the token any more. What executes is scaled by the method's own gates
as it is, and keys and values of skipped tokens follow the method's own policy.

A draw comes from the token's `draw_counters`, as those of random skipping do: the same with or without a cache and in
any batch, and blind to what comes later. Three kinds of tokens draw apart, since methods treat them apart: those of
the prompt, the prompt's last one (which the answer's first token is read off), and those of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adaptive_bench.engine.engine_call import Effort, EngineCall
from adaptive_bench.engine.flop_counter import Run
from adaptive_bench.errors import UsageError
from adaptive_bench.method import Decision, SiteView, draw_key, uniform_from

KINDS = 3  # of tokens: the prompt's, its last one, the answer's
# A kind that the text has none of draws from the next best one, as thresholds of a phase without tokens do.
_INSTEAD = ((0, 1, 2), (1, 2, 0), (2, 1, 0))
_SITE = 4_095  # of the draws' key: no site of a model has this number


def kinds_of(call: EngineCall) -> Tensor:
    """[B, S] which kind of token each is, 0 .. 2; padding is of any."""
    return call.continuation_step.clamp(-1, 1) + 1


class Cost(NamedTuple):
    """Something that was run at a site for single tokens, as in `Run`."""

    site: int
    layer: int
    name: str
    macs: float
    weight_bytes: float


@dataclass(frozen=True)
class DecisionBank:
    """Decision vectors of N tokens, one kind after the other; `pass_on` gives every token one of them.

    It is made on the CPU, and used where `to` brings it.

    Attributes:
        seed: For the draws: the method's.
        counts: Tokens of each kind.
        keep: By site number [N], the tokens that executed.
        answered: By site number [N], the tokens whose probe was their final answer; only of sites that have any.
        costs: How often [N] something was run for each token.
        per_prompt: A row draws once, when its prompt was read: the answer has one other answer's decisions.
    """

    seed: int
    counts: tuple[int, ...]
    keep: Mapping[int, Tensor]
    answered: Mapping[int, Tensor]
    costs: Mapping[Cost, Tensor]
    per_prompt: bool = False

    def pass_on(self, view: SiteView, decision: Decision, effort: Effort) -> Decision:
        """The decision with another token's choice at this site; what was run is booked as it was for that token."""
        call, site = view.call, view.site.number
        assert isinstance(call, EngineCall) and call.tally is not None
        if call.drawn is None:
            call.drawn = self._draw(call)
        for cost in self._costs_at.get(site, ()):
            tokens = _repeated(self.costs[cost][call.drawn] * call.valid)
            call.tally.note_run(Run(cost.layer, cost.name, tokens, cost.macs, cost.weight_bytes))
        if site in self.answered:
            tokens = _repeated(self.answered[site][call.drawn] & call.valid)
            states = view.hidden.flatten(0, 1)[tokens]
            call.answers.append((tokens, call.backbone.head(call.backbone.final_norm(states))))
        return replace(decision, keep=None if site in self._never_skipped else self.keep[site][call.drawn])

    def to(self, device: torch.device) -> DecisionBank:
        """The same on a device."""
        return DecisionBank(
            self.seed,
            self.counts,
            keep={site: values.to(device) for site, values in self.keep.items()},
            answered={site: values.to(device) for site, values in self.answered.items()},
            costs={cost: values.to(device) for cost, values in self.costs.items()},
            per_prompt=self.per_prompt,
        )

    def _draw(self, call: EngineCall) -> Tensor:
        """[B, S] which of the N vectors each token of a call gets."""
        starts, counts = self._places
        kinds = kinds_of(call)
        counters = call.prompt_counters[:, None] if self.per_prompt else call.draw_counters
        drawn = uniform_from(counters, draw_key(self.seed, 0, _SITE))
        return starts[kinds] + (drawn * counts[kinds]).long()

    @cached_property
    def _places(self) -> Tensor:
        """[2, kinds] for each kind of token where the vectors it draws from begin, and how many they are."""
        chosen = [next(kind for kind in kinds if self.counts[kind]) for kinds in _INSTEAD]
        places = [(sum(self.counts[:kind]), self.counts[kind]) for kind in chosen]
        return torch.tensor(places, device=next(iter(self.keep.values())).device).T

    @cached_property
    def _never_skipped(self) -> frozenset[int]:
        return frozenset(site for site, keep in self.keep.items() if bool(keep.all()))

    @cached_property
    def _costs_at(self) -> Mapping[int, Sequence[Cost]]:
        found: dict[int, list[Cost]] = {}
        for cost in self.costs:
            found.setdefault(cost.site, []).append(cost)
        return found


def _repeated(times: Tensor) -> Tensor:
    """Flat indices of tokens, each as often as `times` [B, S] says."""
    flat = times.flatten().long()
    return torch.arange(len(flat), device=flat.device).repeat_interleave(flat)


class DecisionCollector:
    """Notes the decisions of every real token of the calls it stands in, and passes them on as they are."""

    def __init__(self) -> None:
        self._call: EngineCall | None = None
        self._kinds: list[Tensor] = []  # of each call's tokens
        self._notes: dict[tuple[str, Any], list[Tensor | None]] = {}  # by what is noted, of each call

    def pass_on(self, view: SiteView, decision: Decision, effort: Effort) -> Decision:
        """See `Between`."""
        call, site = view.call, view.site.number
        assert isinstance(call, EngineCall) and call.tally is not None
        if call is not self._call:
            self._call = call
            self._kinds.append(kinds_of(call)[call.valid].cpu())
        real = call.valid.flatten()
        keep = call.valid if decision.keep is None else decision.keep
        self._note("keep", site, keep[call.valid])
        for run in effort.runs:
            call.tally.note_run(run)
            cost = Cost(site, run.layer, run.name, run.macs, run.weight_bytes)
            self._note("costs", cost, run.tokens.bincount(minlength=len(real))[real])
        for tokens, logits in effort.answers:
            call.answers.append((tokens, logits))
            self._note("answered", site, tokens.bincount(minlength=len(real))[real] > 0)
        return decision

    def bank(self, seed: int, *, per_prompt: bool = False) -> DecisionBank:
        """Everything that was noted.

        Args:
            seed: For the draws.
            per_prompt: See `DecisionBank`.
        """
        if not sum(map(len, self._kinds)):
            raise UsageError(
                "The control of shuffled decisions draws from those of held-out text, got 0 tokens. Give text."
            )
        kinds = torch.cat(self._kinds)
        order = kinds.argsort(stable=True)
        noted: dict[str, dict[Any, Tensor]] = {"keep": {}, "answered": {}, "costs": {}}
        for (what, where), parts in self._notes.items():
            parts = parts + [None] * (len(self._kinds) - len(parts))
            kind = next(part for part in parts if part is not None)
            whole = [
                kind.new_zeros(len(of)) if part is None else part for part, of in zip(parts, self._kinds, strict=True)
            ]
            noted[what][where] = torch.cat(whole)[order]
        counts = tuple(kinds.bincount(minlength=KINDS).tolist())
        return DecisionBank(seed, counts, **noted, per_prompt=per_prompt)

    def _note(self, what: str, where: Any, values: Tensor) -> None:
        """Values of this call's tokens; of several notes of one thing the sum."""
        parts = self._notes.setdefault((what, where), [])
        parts += [None] * (len(self._kinds) - len(parts))
        values = values.cpu()
        parts[-1] = values if parts[-1] is None else parts[-1] + values
