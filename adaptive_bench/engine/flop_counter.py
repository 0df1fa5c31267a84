"""Counts the work of a call with one formula for all executors, so that the choice of executor cannot flatter a method.

Branches note what they ran. The notes are booked when the call has ended, with one read from the device. If that would
make a decode step wait for an accelerator, many steps are booked together (`Ledger.defer`). A row may stand for several
requests that share it: each request is charged as if it had run alone, for dense and adaptive models alike. The cost of
a method's own linear maps is measured at the maps themselves, whoever calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, cast

import numpy as np
from torch import Tensor, nn

from adaptive_bench.backbone import BRANCHES, Backbone
from adaptive_bench.engine.ledger import Ledger, cosine_macs, read_together
from adaptive_bench.method import Phase
from adaptive_bench.method.call import Measure
from adaptive_bench.store.evaluation import COSINE, RESCALE, Work


@dataclass
class BranchWork:
    """The work of one branch; numbers are weighted by requests.

    Attributes:
        keep: [B, S] kept tokens, `None` for all; on the device until the call has ended.
        slots: Token slots that went through the module's linear maps.
        pairs: (query, key) products that were executed.
        repairs: Whether K,V of skipped tokens were projected; in the masked executor those tokens are in `slots`.
        visible: [B, S] number of keys that each token saw; `None` if it is as in the dense model.
        of_all: Skipped tokens went through the module's linear maps too.
    """

    layer: int
    name: str
    keep: np.ndarray | Tensor | None
    slots: float
    pairs: float = 0.0
    repairs: bool = False
    visible: Tensor | None = None
    of_all: bool = False


@dataclass
class Run:
    """A computation that ran for some tokens: in order to decide, or instead of a branch.

    Attributes:
        name: Name under which the ledger counts it.
        tokens: Flat indices [N]; on the device until the call has ended.
        macs: MACs per token.
        weight_bytes: Bytes of weights, read once for all tokens.
        among: Boolean [B, S], the tokens that needed it, if fixed shapes made the other tokens run too.
        bucket: Bucket of the ledger.
    """

    layer: int
    name: str
    tokens: Tensor
    macs: float
    weight_bytes: float = 0.0
    among: Tensor | None = None
    bucket: str = "overhead.decision"


@dataclass(eq=False)
class Tally:
    """Notes of one forward call of B rows and S tokens.

    Attributes:
        ledger: The ledger to book in.
        backbone: Gives the costs of a token and of a (query, key) pair.
        phase: The phase to book under.
        valid: [B, S] real tokens, on the host.
        positions: [B, S] position of each token in its sequence, on the host.
        requests: [B] number of requests that each row stands for; `None` for one each.
        packed: Whether skipped tokens do not run through the modules.
        branches, runs: The notes so far.
    """

    ledger: Ledger
    backbone: Backbone
    phase: Phase
    valid: np.ndarray
    positions: np.ndarray
    requests: np.ndarray | None
    packed: bool
    branches: list[BranchWork] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._all_rows = len(self.valid) if self.requests is None else int(self.requests.sum())
        self._probed: tuple[np.ndarray, Tensor] | None = None  # see `note_head`
        # By window; most models have one or two windows for all their layers.
        self._visible: dict[int | None, np.ndarray] = {}
        self._dense_pairs: dict[int | None, int] = {}
        # They differ only in a `part`: fewer tokens run there than could have.
        self._tokens = self._eligible = self.weigh(self.valid)

    def weigh(self, mask: np.ndarray) -> int:
        """Number of tokens in a mask [B, S], each counted once per request behind its row."""
        if self.requests is None:
            return int(np.count_nonzero(mask))
        return int((mask.sum(axis=1) * self.requests).sum())

    def _weigh_visible(self, visible: np.ndarray, mask: np.ndarray) -> int:
        """Number of visible keys [B, S] of a mask's tokens, weighted as in `weigh`."""
        if self.requests is None:
            return int(visible[mask].sum())
        return int(((visible * mask).sum(axis=1) * self.requests).sum())

    def rows(self, rows: np.ndarray | None = None) -> int:
        """Number of requests behind the given rows, or behind all rows."""
        if rows is None:
            return self._all_rows
        return len(rows) if self.requests is None else int(self.requests[rows].sum())

    def part(self, valid: np.ndarray, positions: np.ndarray) -> Tally:
        """A tally for other tokens [B, N] that run through some layers of this call, with the same eligible tokens."""
        part = Tally(self.ledger, self.backbone, self.phase, valid, positions, self.requests, packed=self.packed)
        part._eligible = self._eligible
        return part

    def book_dense(self) -> None:
        """Book what the dense model needs for the same tokens, without the head."""
        self.ledger.calls[self.phase] += 1
        self.ledger.tokens[self.phase] += self._eligible
        work = self.ledger.work[self.phase]
        work[:, Work.DENSE_TOKENS] += self._eligible
        work[:, Work.DENSE_PAIRS] += [self._pairs_of_all(window) for window in self.backbone.windows]

    def book_idle(self, layers: range) -> None:
        """Book layers that could have run and did not."""
        nobody = np.zeros_like(self.valid)
        self.branches += [BranchWork(layer, name, nobody, 0) for layer in layers for name in BRANCHES]

    def book_decision(self, layer: int, reading: Reading) -> None:
        """Book one of the method's linear maps. If it ran for every slot of the call, padding is waste."""
        if not reading.macs:
            return
        slots = self.rows() * self.valid.shape[1]  # counted for all requests behind the rows
        # Otherwise the map ran per row or for chosen tokens, and all of its inputs were needed.
        needed = self._eligible if reading.inputs == self.valid.size else slots
        self.ledger.book(self.phase, layer, "overhead.decision", reading.macs * needed / self.valid.size)
        self.ledger.book(self.phase, layer, "waste.dense", reading.macs * (slots - needed) / self.valid.size)
        self.ledger.count(self.phase, reading.name, reading.inputs * needed / self.valid.size)
        self.ledger.read_weights(self.phase, reading.weight_bytes)

    def book_measure(self, layer: int, what: Measure, tokens: Tensor, among: Tensor | None = None) -> None:
        """Book a run of the head, a cosine of two states, or a norm of one (H MACs), for each token at flat indices
        [N], as a decision; `among` as in `Run`.
        """
        macs, weight_bytes = self.backbone.hidden_size, 0
        if what == "probe":
            macs, weight_bytes = self.backbone.head_macs, self.backbone.head_bytes
        elif what == COSINE:
            macs = cosine_macs(macs)
        self.runs.append(Run(layer, what, tokens, macs, weight_bytes, among))

    def book_map(
        self,
        layer: int,
        reading: Reading,
        tokens: Tensor,
        among: Tensor | None = None,
        bucket: str = "overhead.decision",
    ) -> None:
        """Book one of the method's linear maps, run once for each token at flat indices [N]; `among` as in `Run`."""
        # Per token, so that `_book_run` can charge the requests behind each row.
        macs = reading.macs / max(1, tokens.numel())
        self.runs.append(Run(layer, reading.name, tokens, macs, reading.weight_bytes, among, bucket))

    def note_head(self, needed: np.ndarray, answered: Tensor) -> None:
        """Note that the head ran for positions [B, K], of which some were `needed`, those of real tokens, and some
        `answered` by probes before.
        """
        self._probed = needed, answered

    def book_head(self, *, needed: int, computed: int, reused: int, open_: int | None = None) -> None:
        """Book the language-model head.

        Args:
            needed: Number of positions of real tokens for which the head ran.
            computed: Number of all positions for which it ran.
            reused: Number of positions that a probe had answered; the probe moves from overhead to core, so that it
                counts once.
            open_: Number of positions that no probe had answered, if the head ran for the answered ones too.
        """
        head, macs = self.ledger.num_layers, self.backbone.head_macs
        head_bytes = self.backbone.head_bytes
        # With fixed shapes the head always runs, but counts as read only if some position needed it.
        reads = bool(computed if open_ is None else open_)
        self.ledger.read_weights(self.phase, head_bytes * reads, dense=head_bytes * bool(computed + reused))
        self.ledger.book(self.phase, head, "core.head", (needed + reused) * macs)
        # Probes were booked under their own layers; reports sum over rows, the head's included.
        self.ledger.book(self.phase, head, "overhead.decision", -reused * macs)
        self.ledger.book(self.phase, head, "waste.dense", (computed - needed) * macs)
        self.ledger.book_dense_head(self.phase, (needed + reused) * macs)
        self.ledger.count(self.phase, "head", needed + reused)
        self.ledger.count(self.phase, "probe", -reused)

    def book_embedding(self) -> None:
        """Book adapters beside the embedding under the head, as both are outside the layers; look-ups cost no MAC."""
        if macs := self.backbone.embedding_macs:
            head, slots = self.ledger.num_layers, self.rows() * self.valid.shape[1]
            self.ledger.book(self.phase, head, "core.head", self._eligible * macs)
            self.ledger.book(self.phase, head, "waste.dense", (slots - self._eligible) * macs)
            self.ledger.book_dense_head(self.phase, self._eligible * macs)

    def settle(self) -> None:
        """Book all notes. Tensors on the device are read at once, or later for many decode steps together."""
        pending = self.pending()
        if pending and pending[0].device.type != "cpu" and self.valid.shape[1] == 1:
            self.ledger.defer(pending, self.take)
        else:
            self.take(read_together(pending))

    def pending(self) -> list[Tensor]:
        """The tensors that the host must know before booking, in the order that `take` expects."""
        found = [part for branch in self.branches for part in (branch.keep, branch.visible)]
        # `among` replaces `tokens`, which are needed on the host only to find the requests behind them.
        for run in self.runs:
            found.append(run.among if run.among is not None else None if self.requests is None else run.tokens)
        found.append(None if self._probed is None else self._probed[1])
        return [part for part in found if isinstance(part, Tensor)]

    def take(self, values: Sequence[np.ndarray]) -> None:
        """Book all notes, given the values of the `pending` tensors."""
        known = iter(values)

        def read(part: np.ndarray | Tensor | None) -> np.ndarray | None:
            return next(known) if isinstance(part, Tensor) else part

        # Plain lists: writing single numbers into an array costs several times as much.
        work = [[0.0] * Work.COLUMNS for _ in self.backbone.windows]
        for branch in self.branches:
            mask, visible = read(branch.keep), read(branch.visible)
            mask = mask & self.valid if isinstance(branch.keep, Tensor) and mask is not None else mask
            self._book_branch(branch, mask, visible, work[branch.layer])
        self.ledger.work[self.phase] += work
        self.branches.clear()
        for run in self.runs:
            self._book_run(run, read)
        self.runs.clear()
        if self._probed is not None:
            needed, answered = self._probed[0], read(self._probed[1])
            assert answered is not None
            open_, reused = self.weigh(~answered), self.weigh(answered)
            everything = self.weigh(np.ones_like(answered))
            self.book_head(needed=self.weigh(needed & ~answered), computed=everything, reused=reused, open_=open_)

    def _book_branch(
        self, branch: BranchWork, mask: np.ndarray | None, visible: np.ndarray | None, row: list[float]
    ) -> None:
        kept = self._tokens if mask is None else self.weigh(mask)
        if branch.name == "mlp":
            # The four columns of a branch are neighbours in `Work`.
            row[Work.MLP_ELIGIBLE : Work.MLP_READS + 1] = self._eligible, kept, branch.slots, kept > 0
            return
        row[Work.ATTENTION_ELIGIBLE : Work.ATTENTION_READS + 1] = self._eligible, kept, branch.slots, kept > 0
        window = self.backbone.windows[branch.layer]
        if visible is not None:
            row[Work.SEEN] = self._weigh_visible(visible, self.valid if mask is None else mask)
        elif mask is None:
            row[Work.SEEN] = self._pairs_of_all(window)
        elif kept:
            row[Work.SEEN] = self._weigh_visible(self._dense_visible(window), mask)
        row[Work.PAIRS] = branch.pairs
        repaired = self._tokens - kept if branch.repairs else 0
        row[Work.KV_READS] = repaired > 0 and not kept  # no token attends: only the k and v weights are read
        row[Work.REPAIRED] = repaired  # in masked execution these tokens are among the slots
        row[Work.PROJECTED] = branch.slots + repaired if self.packed and not branch.of_all else branch.slots

    def _book_run(self, run: Run, read: Callable[[Tensor], np.ndarray | None]) -> None:
        count = run.tokens.numel()
        if run.among is not None:
            among = read(run.among)
            assert among is not None
            spare, count = self.rows() * self.valid.shape[1], self.weigh(among)
            self.ledger.book(self.phase, run.layer, "waste.dense", (spare - count) * run.macs)
        elif self.requests is not None:
            tokens = read(run.tokens)
            assert tokens is not None
            count = int(self.requests[tokens // self.valid.shape[1]].sum())
        self.ledger.book(self.phase, run.layer, run.bucket, count * run.macs)
        # A run with fixed shapes, or of an adapter, that no token needed is not named: otherwise it would not have run.
        if count or (run.among is None and run.bucket != "overhead.adapter"):
            self.ledger.count(self.phase, run.name, count)
        self.ledger.read_weights(self.phase, run.weight_bytes * bool(count))

    def _pairs_of_all(self, window: int | None) -> int:
        """(query, key) pairs of all real tokens in the dense model."""
        if window not in self._dense_pairs:
            self._dense_pairs[window] = self._weigh_visible(self._dense_visible(window), self.valid)
        return self._dense_pairs[window]

    def _dense_visible(self, window: int | None) -> np.ndarray:
        """[B, S] number of keys each token would see in the dense model."""
        if window not in self._visible:
            counts = self.positions + 1  # a token sees itself and all earlier ones
            self._visible[window] = counts if window is None else counts.clip(max=window)
        return self._visible[window]


class Reading(NamedTuple):
    """The measured cost of one run of a linear map, or of one scaling of states.

    Attributes:
        name: Name under which the ledger counts it: `method.` and the map's name inside the method, for example
            `method.gates.3`, or `rescale`.
        inputs: Number of input vectors: tokens, or rows if a row decides as a whole.
        macs: Multiply-accumulates for all of them.
        weight_bytes: Bytes of the weight matrix, which is read once.
    """

    name: str
    inputs: int
    macs: int
    weight_bytes: int


class DecisionMeter:
    """Measures every run of an `nn.Linear` inside a method, by forward hooks."""

    def __init__(self, method: nn.Module) -> None:
        self._readings: list[Reading] = []
        for name, module in method.named_modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(partial(self._read, name))

    def take(self) -> list[Reading]:
        """Take out all readings since the last call of `take`."""
        taken, self._readings = self._readings, []
        return taken

    def take_last(self, count: int) -> list[Reading]:
        """Take out the last `count` readings, in order; a later `take` does not return them."""
        # Not `[-count:]`, which takes everything for a network without linear maps.
        taken = self._readings[len(self._readings) - count :]
        del self._readings[len(self._readings) - count :]
        return taken

    def note_rescale(self, states: int, width: int) -> None:
        """Note that `states` states of `width` numbers were multiplied by a number."""
        self._readings.append(Reading(RESCALE, states, states * width, 0))

    def _read(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        weight = cast(nn.Linear, module).weight
        # `nn.Linear` takes any leading shape: tokens [B, S, H], or rows [B, H].
        vectors = inputs[0].numel() // weight.shape[1]
        self._readings.append(
            Reading(f"method.{name}", vectors, vectors * weight.numel(), weight.numel() * weight.element_size())
        )
