"""`EngineCall`: a forward call as the engine runs it, which adds masks, cache and ledger to what a method sees.

Everything that shapes depend on is known to the host. Real tokens are read from the device once per call, and decisions
once per deciding site (or once per call if the method decides ahead). Decode steps on an accelerator read no decisions
(`EngineCall.fixed_shapes`). Nothing else waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from adaptive_bench.backbone import Site, Tables, Turn
from adaptive_bench.engine.flop_counter import DecisionMeter, Run, Tally
from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.engine.slots import Kept
from adaptive_bench.method import Decision, ForwardCall, KVPolicy, SiteView
from adaptive_bench.method.call import PROMPT_LENGTH, Measure

Executor = Literal["masked", "packed"]


class Between(Protocol):
    """Receives every decision on its way from the method to the executors, and may replace it; see `shuffling`."""

    def pass_on(self, view: SiteView, decision: Decision, effort: Effort) -> Decision:
        """The decision to execute at a view whose call is an `EngineCall`."""


class Effort(NamedTuple):
    """What a method ran at one site in order to decide; the receiver decides which of it is booked.

    Attributes:
        runs: Runs that are not booked yet.
        answers: Flat token indices [N] with final logits [N, V] that are not yet among the call's answers.
    """

    runs: Sequence[Run]
    answers: Sequence[tuple[Tensor, Tensor]]


@dataclass(kw_only=True)
class EngineCall(ForwardCall):
    """One forward call of B rows and S tokens.

    Attributes:
        rotary: Tables (cos, sin) [B, S, R], by kind; see `RotaryTables`.
        cache: K,V of earlier calls; `None` if nothing has to be merged or kept.
        executor: The executor of the branches.
        tally: Books the work; `None` in training.
        meter: Counts the MACs of the method's own linear maps.
        recomputes: Branches are recomputed in the backward pass (gradient checkpointing).
        between: Stands between the method and the executors; `None` if decisions are executed unchanged.
        drawn: [B, S] the decision vector of a `shuffling.DecisionBank` that each token got; `None` before the draw.
    """

    rotary: Tables
    cache: AdaptiveCache | None
    kv_policy: KVPolicy
    executor: Executor
    tally: Tally | None
    meter: DecisionMeter
    recomputes: bool = False
    between: Between | None = None
    drawn: Tensor | None = None
    # By `id` of the mask. The mask itself is stored too, so that no later tensor can get the same id.
    _host_masks: dict[int, tuple[Tensor, np.ndarray]] = field(default_factory=dict)
    # The last answer of `kept` and the mask it is for: both branches of a layer often have the same mask.
    _kept: tuple[Tensor | None, Kept | None] | None = None
    _masks: dict[int | None, Tensor] = field(default_factory=dict)  # by window, see `shared_mask`

    @cached_property
    def first(self) -> Tensor:
        """Boolean [B, S], the first token of each text."""
        return self.valid & (self.positions == 0)

    @cached_property
    def decodes(self) -> bool:
        """Whether this is one more token per row for the packed executor."""
        return self.executor == "packed" and self.valid.shape[1] == 1 and self.cache is not None

    @cached_property
    def slots(self) -> Tensor:
        """Flat indices [B S] of every token of the call, padding included."""
        return torch.arange(self.valid.numel(), device=self.valid.device)

    @cached_property
    def turns(self) -> list[Turn]:
        """Rotary rows of all B S tokens, by layer; layers of one kind share them."""
        # [B, S, R] to [B S, 1, R]: one row per token, the same for all of its heads.
        kinds = [Turn.of(*(table.flatten(0, 1)[:, None] for table in tables)) for tables in self.rotary]
        return [kinds[kind] for kind in self.backbone.rotary.kinds]

    def rotary_of(self, layer: int) -> tuple[Tensor, Tensor]:
        """A layer's tables (cos, sin) [B, S, R]."""
        return self.rotary[self.backbone.rotary.kinds[layer]]

    @property
    def mask_type(self) -> torch.dtype:
        """The dtype of additive masks."""
        return self.rotary[0][0].dtype

    @cached_property
    def fixed_shapes(self) -> bool:
        """Whether this is a decode step on an accelerator, whose decisions Python could not read without waiting.

        All rows then run every branch whose decision depends on hidden states, and the outputs of skipping rows are
        discarded. This costs little, since single steps are bound by reading weights, which one row needs as much as
        all. With `between`, tokens are counted, so the host waits.
        """
        return self.decodes and self.between is None and self.valid.device.type != "cpu"

    def reads(self, keep: Tensor | None) -> bool:
        """Whether the host would have to wait for a mask [B, S] to know which tokens execute."""
        return keep is not None and id(keep) not in self._host_masks

    def foresee(self, ahead: Sequence[Decision] | None) -> None:
        """Take decisions known before the layers run; all masks that the host does not know are read at once."""
        self.ahead = ahead
        if self.executor != "packed":  # masked execution computes every token and never asks which ones are kept
            return
        # Decisions of several sites may share a mask: it is read only once.
        masks = {id(one.keep): one.keep for one in ahead or () if one.keep is not None and not one.nobody}
        for one in ahead or ():
            if one.keep is not None and one.nobody:
                self._host_masks[id(one.keep)] = one.keep, np.zeros_like(self.host_valid)
        if masks:
            read = torch.stack(list(masks.values())).cpu().numpy()
            self._host_masks |= {key: (mask, read[place]) for place, (key, mask) in enumerate(masks.items())}

    def kept(self, keep: Tensor | None) -> Kept | None:
        """The real tokens among the kept ones ([B, S], `None` means all); `None` if that is every slot of the call."""
        # `is`, since comparing the values would read both masks from the device.
        if self._kept is None or self._kept[0] is not keep:
            if keep is None:
                mask = self.host_valid
            else:
                known = self._host_masks.get(id(keep))
                mask = (keep.cpu().numpy() if known is None else known[1]) & self.host_valid
            count = int(np.count_nonzero(mask))
            everything = count == mask.size
            self._kept = keep, None if everything else Kept(mask, count, self.host_valid, self.valid.device)
        return self._kept[1]

    def end(self) -> None:
        """Store in the session what later calls need, even if the method did not read it in this call, since the dial
        may change between calls. Then book the work.
        """
        if self.cache is not None and self.valid.numel():
            self.session.state[PROMPT_LENGTH] = self.prompt_length
            # From `__dict__`: reading the property would compute the hash even if nothing was drawn.
            valid, hashes = None if self.all_valid else self.valid, self.__dict__.get("prefix_hash")
            self.session.advance(self.input_ids, valid, self.host_valid.sum(axis=1), hashes)
        # With `probed`, the head is still to be noted; `_logits_of_all` settles both with one read.
        if self.tally is not None and not self.probed:
            self.tally.settle()

    def embed(self) -> Tensor:
        """Hidden states [B, S, H] before the first layer."""
        if self.tally is not None:
            self.tally.book_embedding()
        return self.backbone.embed(self.input_ids)

    def normalise(self, site: Site, hidden: Tensor) -> Tensor:
        norm = self.backbone.norm_before(site)
        if norm is not None and self.decodes:
            return self.backbone.step.norm(norm, hidden)
        return super().normalise(site, hidden)

    def book_measure(self, layer: int, what: Measure, tokens: Tensor, among: Tensor | None = None) -> None:
        if self.tally is not None:
            self.tally.book_measure(layer, what, tokens, among)

    def note_rescale(self, states: int) -> None:
        self.meter.note_rescale(states, self.backbone.hidden_size)

    def take_effort(self, runs: int, answers: int) -> Effort:
        """Take out the runs and answers noted since there were `runs` runs and `answers` answers."""
        assert self.tally is not None, "only training has no books"
        taken = Effort(self.tally.runs[runs:], self.answers[answers:])
        del self.tally.runs[runs:], self.answers[answers:]
        return taken

    def run_map(
        self, layer: int, network: nn.Module, states: Tensor, tokens: Tensor, among: Tensor | None = None
    ) -> Tensor:
        output: Tensor = network(states)
        # Each linear map in the network has just run once, so the newest readings are theirs.
        readings = self.meter.take_last(sum(isinstance(part, nn.Linear) for part in network.modules()))
        if self.tally is not None:
            for reading in readings:
                self.tally.book_map(layer, reading, tokens, among)
        return output

    def repairs_kv(self, layer: int) -> bool:
        """Whether K,V of skipped tokens are projected at this layer."""
        return self.kv_policy == "recompute" or (self.kv_policy == "copy_below" and layer == 0)

    @cached_property
    def pads_right_only(self) -> bool:
        """Whether real tokens come first in every row, so that causality alone hides the padding from them."""
        return self.all_valid or bool((self.host_valid[:, :-1] >= self.host_valid[:, 1:]).all())

    @cached_property
    def own_keys(self) -> Tensor:
        """[B, S] key positions without a cache, -1 for padding."""
        return self.positions if self.all_valid else self.positions.masked_fill(~self.valid, -1)

    def mask(self, layer: int, queries: Tensor, keys: Tensor) -> Tensor:
        """Additive mask [R, 1, N, T] for query positions [R, N] and key positions [R, T]."""
        return additive(visible_keys(queries, keys, self.backbone.windows[layer]), self.mask_type)

    def dense_mask(self, layer: int, keys: Tensor) -> Tensor | None:
        """Mask [B, 1, S, T] if all S tokens query keys at positions [B, T]; `None` if the kernel needs none.

        Layers that store the same tokens and have the same window share one mask.
        """
        window, length, reach = self.backbone.windows[layer], self.valid.shape[1], keys.shape[1]
        sparse = self.kv_policy in ("evict", "defer")  # even a few keys may then lie further apart than the window
        if not self.backbone.eager and (window is None or (reach < window and not sparse)):
            # No earlier keys: the kernel's own causal mask is enough, as padding lies to the right of every real token.
            if reach == length and self.pads_right_only:
                return None
            hidden = self.cache is None or self.cache.store(layer).table.has_hidden
            # One query per row, and all keys are earlier tokens or the query itself: it sees all of them.
            if length == 1 and self.all_valid and not hidden:
                return None
        return self.mask(layer, self.positions, keys) if sparse else self.shared_mask(window, keys)

    def shared_mask(self, window: int | None, keys: Tensor) -> Tensor:
        """Additive mask [B, 1, S, T] for keys [B, T] that all layers store; made once per window and call."""
        if window not in self._masks:
            seen = visible_keys(self.positions, keys, window)
            self._masks[window] = additive(seen, self.mask_type)
        return self._masks[window]


def visible_keys(query_positions: Tensor, key_positions: Tensor, window: int | None) -> Tensor:
    """Boolean [B, N, T], the keys at positions [B, T] (-1 for hidden slots) that each query at positions [B, N] sees,
    with a sliding window of that many tokens.
    """
    queries, keys = query_positions[:, :, None], key_positions[:, None, :]
    seen = (keys >= 0) & (keys <= queries)
    return seen if window is None else seen & (keys > queries - window)


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Boolean [B, N, T] to the additive float mask [B, 1, N, T] that every attention implementation takes."""
    mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return mask.masked_fill(~seen, torch.finfo(dtype).min)[:, None]
