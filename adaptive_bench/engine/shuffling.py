"""The control of shuffled decisions: the method's own model, with each token given the decisions of another token.

A bank holds whole decision vectors of tokens of held-out text: for every site, whether the token executed the branch
and what was run in order to decide. On replay, every token draws one of these vectors at random. So each site skips as
often as with the method, a token that exits skips everything above, and probes cost the same; only *which* token skips
no longer depends on the token. Executed branches are scaled by the method's own gates, and keys and values of skipped
tokens follow the method's own policy.

Draws use the token's `draw_counters`, as random skipping does: they are the same with or without a cache and in any
batch, and do not depend on later tokens. Three kinds of tokens draw separately, since methods treat them differently:
tokens of the prompt, the prompt's last token (which predicts the answer's first token), and tokens of the answer.
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

KINDS = 3  # kinds of tokens: in the prompt, its last token, in the answer
# If the held-out text has no tokens of a kind, the kind draws from the next best one, as thresholds do for a phase.
_INSTEAD = ((0, 1, 2), (1, 2, 0), (2, 1, 0))
_SITE = 4_095  # the site in the draws' key; no real site has this number


def kinds_of(call: EngineCall) -> Tensor:
    """[B, S] the kind of each token, 0 .. 2; undefined for padding."""
    # The step is 1 for the answer's first token, 0 for the prompt's last one and negative before it.
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
    """Decision vectors of N tokens, sorted by kind; `pass_on` gives every token one of them.

    It is built on the CPU; `to` moves it to the device where it is used.

    Attributes:
        seed: Seed of the draws, the same as the method's.
        counts: Number of tokens of each kind.
        keep: By site number, a mask [N] of the tokens that executed.
        answered: By site number, a mask [N] of the tokens whose probe gave their final logits; only sites with such.
        costs: How often [N] each cost arose for each token.
        per_prompt: Each row draws once, after its prompt: the whole answer gets the decisions of one other answer.
    """

    seed: int
    counts: tuple[int, ...]
    keep: Mapping[int, Tensor]
    answered: Mapping[int, Tensor]
    costs: Mapping[Cost, Tensor]
    per_prompt: bool = False

    def pass_on(self, view: SiteView, decision: Decision, effort: Effort) -> Decision:
        """The decision with another token's choice at this site; the costs of that token's decision are booked."""
        call, site = view.call, view.site.number
        assert isinstance(call, EngineCall) and call.tally is not None
        # Once per call: all sites of a token follow the same vector.
        if call.drawn is None:
            call.drawn = self._draw(call)
        for cost in self._costs_at.get(site, ()):
            tokens = _repeated(self.costs[cost][call.drawn] * call.valid)
            call.tally.runs.append(Run(cost.layer, cost.name, tokens, cost.macs, cost.weight_bytes))
        if site in self.answered:
            tokens = _repeated(self.answered[site][call.drawn] & call.valid)
            # The token's own state at this site is answered. The head's run is among `costs`, as the probe it replaces.
            states = view.hidden.flatten(0, 1)[tokens]
            call.answers.append((tokens, call.backbone.head(call.backbone.final_norm(states))))
        # `None` where nobody ever skips: the branch then runs dense, without a mask to read.
        return replace(decision, keep=None if site in self._never_skipped else self.keep[site][call.drawn])

    def to(self, device: torch.device) -> DecisionBank:
        """The same bank on a device."""
        moved: dict[str, Any] = {}
        for name in ("keep", "answered", "costs"):
            moved[name] = {key: values.to(device) for key, values in getattr(self, name).items()}
        return replace(self, **moved)

    def _draw(self, call: EngineCall) -> Tensor:
        """[B, S] the index of the decision vector that each token of a call gets."""
        starts, counts = self._places
        kinds = kinds_of(call)
        counters = call.prompt_counters[:, None] if self.per_prompt else call.draw_counters
        drawn = uniform_from(counters, draw_key(self.seed, 0, _SITE))
        return starts[kinds] + (drawn * counts[kinds]).long()

    @cached_property
    def _places(self) -> Tensor:
        """[2, kinds] for each kind of token, the start and the number of the vectors from which it draws."""
        # Vectors are sorted by kind, so a kind's start is the number of vectors of all kinds before it.
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
    """Flat indices of tokens, each repeated as often as `times` [B, S] says."""
    flat = times.flatten().long()
    return torch.arange(len(flat), device=flat.device).repeat_interleave(flat)


class DecisionCollector:
    """Records the decisions of every real token of its calls, and passes them on unchanged."""

    def __init__(self) -> None:
        self._call: EngineCall | None = None
        self._kinds: list[Tensor] = []  # one tensor per call, over its tokens
        self._notes: dict[tuple[str, Any], list[Tensor | None]] = {}  # by kind of note, one tensor per call

    def pass_on(self, view: SiteView, decision: Decision, effort: Effort) -> Decision:
        call, site = view.call, view.site.number
        assert isinstance(call, EngineCall) and call.tally is not None
        if call is not self._call:
            self._call = call
            self._kinds.append(kinds_of(call)[call.valid].cpu())
        real = call.valid.flatten()
        keep = call.valid if decision.keep is None else decision.keep
        self._note("keep", site, keep[call.valid])
        for run in effort.runs:
            call.tally.runs.append(run)
            cost = Cost(site, run.layer, run.name, run.macs, run.weight_bytes)
            # A run may cover any tokens, some several times: count them per token [B S], then take the real ones.
            self._note("costs", cost, run.tokens.bincount(minlength=len(real))[real])
        for tokens, logits in effort.answers:
            call.answers.append((tokens, logits))
            self._note("answered", site, tokens.bincount(minlength=len(real))[real] > 0)
        return decision

    def bank(self, seed: int, *, per_prompt: bool = False) -> DecisionBank:
        """The bank of everything recorded."""
        if not sum(map(len, self._kinds)):
            raise UsageError(
                "The control of shuffled decisions draws from those of held-out text, got 0 tokens. Give text."
            )
        kinds = torch.cat(self._kinds)
        order = kinds.argsort(stable=True)
        noted: dict[str, dict[Any, Tensor]] = {"keep": {}, "answered": {}, "costs": {}}
        for (what, where), parts in self._notes.items():
            # Calls after the last note: nothing of this kind arose in them.
            parts = parts + [None] * (len(self._kinds) - len(parts))
            # Some call has it, or the note would not exist; it gives the dtype of the zeros.
            kind = next(part for part in parts if part is not None)
            whole = [
                kind.new_zeros(len(of)) if part is None else part for part, of in zip(parts, self._kinds, strict=True)
            ]
            noted[what][where] = torch.cat(whole)[order]
        counts = tuple(kinds.bincount(minlength=KINDS).tolist())
        return DecisionBank(seed, counts, **noted, per_prompt=per_prompt)

    def _note(self, what: str, where: Any, values: Tensor) -> None:
        """Record values for this call's tokens, and add them up if they are recorded several times."""
        parts = self._notes.setdefault((what, where), [])
        # One entry per call up to this one; calls without the note have `None`.
        parts += [None] * (len(self._kinds) - len(parts))
        values = values.cpu()
        parts[-1] = values if parts[-1] is None else parts[-1] + values
