"""Decodes in steps that are recorded once and then replayed (CUDA graphs).

Launched kernel by kernel, a step of a small model takes as long as Python needs, not as long as the device needs. Here
a step is one function of tensors that never move (`StaticCache`, the tokens, the logits). It reads no value on the
host, and its shapes depend only on the number of rows and the number of slots attended to, which grows in powers of
two. For each such pair, the first step runs normally, to create everything that is made at first use, and the second
step is recorded. Without a recorder the same function runs every time; tests compare with this, and a CPU does it.

Fixed shapes have a cost: a step attends to all slots up to the next power of two, and skipping rows run through their
branches anyway. The ledger books both as `waste.dense`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adaptive_bench.engine.flop_counter import Tally
from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.engine.ledger import Deferred, Ledger
from adaptive_bench.engine.static_cache import StaticCache
from adaptive_bench.errors import UsageError
from adaptive_bench.model.forward import ForwardModel

Replay = Callable[[], None]


class Recorder(Protocol):
    """Runs and records a function of fixed tensors."""

    def warm_up(self, run: Callable[[], Step]) -> Step:
        """Run the function."""

    def record(self, run: Callable[[], Step]) -> tuple[Step, Replay]:
        """Record the function's work on the device without executing it; returns its step and a function to replay."""


class CudaRecorder:
    """Records CUDA graphs. The graphs share memory, since only one runs at a time and results are copied."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self._pool: Any = None

    def warm_up(self, run: Callable[[], Step]) -> Step:
        """Run the function on a separate stream, as recording requires."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            step = run()
        torch.cuda.current_stream().wait_stream(self._stream)
        return step

    def record(self, run: Callable[[], Step]) -> tuple[Step, Replay]:
        """Record the function as one graph."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            step = run()
        self._pool = graph.pool()
        return step, graph.replay


@dataclass
class Step:
    """The results of one step.

    Attributes:
        logits: [B, 1, V].
        noted: Work that was booked at once.
        notes: Work to be booked when the host knows `values`.
        values: The values of all tensors of `notes.pending()`, flattened; `None` if there are none.
    """

    logits: Tensor
    noted: Ledger
    notes: Tally
    values: Tensor | None


class StaticSteps:
    """Decodes up to `rows` texts together in recorded steps.

    Make it once and pass it to every `generate_queue` of the model, so that recordings are reused. Steps are recorded
    again after the dial, the weights or the thresholds have changed.

    Args:
        model: The model, in `eval()` mode.
        rows: Largest number of texts in the batch.
        capacity: Largest number of tokens of a text: prompt (with padding) and new tokens together.
        recorder: By default CUDA graphs if the model is on a CUDA device, else none.
        least_reach: Smallest number of slots that a step attends to.

    Attributes:
        recorded: (rows, slots attended to) of each recording, in order.
        not_recorded: Why steps are not recorded; `None` if they are.
    """

    def __init__(
        self,
        model: ForwardModel,
        *,
        rows: int,
        capacity: int,
        recorder: Recorder | None = None,
        least_reach: int = 128,
    ) -> None:
        if reason := why_not_static(model):
            raise UsageError(f"{reason} Decode without StaticSteps.")
        device = model.backbone_model.device
        if recorder is None and device.type == "cuda" and torch.cuda.is_available():
            recorder = CudaRecorder()
        self.not_recorded = None if recorder else f"there is no device for CUDA graphs: the model is on {device.type}"
        self.recorded: list[tuple[int, int]] = []
        self._model, self._recorder, self._least_reach = model, recorder, least_reach
        self._books = _Notes(model.ledger)
        self.cache = StaticCache(rows, device, model.method.kv_policy, capacity, self._books)
        self._tokens = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self._begun: set[tuple[int, int, float]] = set()
        self._steps: dict[tuple[int, int, float], tuple[Step, Replay, list[Tensor]]] = {}
        self._sources: list[tuple[Tensor, int]] = []

    def join(self, cache: AdaptiveCache, *, anew: bool = False) -> None:
        """Add texts from an ordinary cache of the model, which holds their prompts.

        Args:
            anew: Forget all other texts first.
        """
        sources = _sources(self._model)
        if [(id(tensor), place) for tensor, place in sources] != [(id(one), place) for one, place in self._sources]:
            self._sources, self._books.costs = sources, self._model.ledger.costs
            self._begun.clear()
            self._steps.clear()
        if anew:
            self.cache.clear()
        self.cache.join(cache)

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token [B] of every text; returns logits [B, 1, V]."""
        model, cache = self._model, self.cache
        if reason := why_not_static(model):
            raise UsageError(f"{reason} Decode without StaticSteps.")
        needed = int(cache.host_slots.max(initial=0)) + 1
        if needed > cache.capacity:
            raise UsageError(
                f"A text has room for {cache.capacity} tokens, got {needed}. Make StaticSteps with a larger capacity."
            )
        reach = min(cache.capacity, max(self._least_reach, 1 << (needed - 1).bit_length()))
        self._tokens[: cache.batch, 0] = tokens
        cache.begin_step(reach)
        # Copied before the step: running it in Python advances the lengths, a replay does not.
        positions = cache.session.host_lengths[:, None].copy()
        step = self._take(reach)
        model.ledger.defer(_Booking(model.ledger, step, positions))
        cache.count_step()
        return step.logits.clone() if self._recorder else step.logits

    def _take(self, reach: int) -> Step:
        key = (self.cache.batch, reach, self._model.dial)
        if self._recorder is None:
            return self._run()
        if key not in self._begun:
            self._begun.add(key)
            return self._recorder.warm_up(self._run)
        if key not in self._steps:
            # Tensors made while recording hold no values yet, so the cached rotary table must exist before.
            self._model.backbone.rotary.at(self._tokens[:1], reach=self.cache.capacity)
            try:
                with _Reads() as reads:
                    step, replay = self._recorder.record(self._run)
            except RuntimeError as error:
                raise UsageError(
                    f"A step can be recorded only if nothing in it waits for the device, got from "
                    f"{type(self._model.method).__name__}: {error}. Decode without StaticSteps, or set repeatable to "
                    f"False in the method's class."
                ) from error
            self._steps[key] = step, replay, reads.found
            self.recorded.append(key[:2])
        step, replay, _ = self._steps[key]
        replay()
        return step

    def _run(self) -> Step:
        """The step itself, which only does work on the device."""
        cache, books = self.cache, self._books
        books.reset()
        ids = self._tokens[: cache.batch]
        logits = self._model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        cache.end_step()
        pending = books.notes.pending()
        values = torch.cat([one.flatten().long() for one in pending]) if pending else None
        noted = Ledger(books.costs)
        noted.book_again("decode", books)
        return Step(logits, noted, books.notes, values)


def why_not_static(model: ForwardModel) -> str | None:
    """Why a model cannot decode in static steps, as a sentence; `None` if it can."""
    method = model.method
    if model.training or model.executor != "packed":
        return "Static steps are for the packed executor in eval() mode."
    if not method.repeatable:
        return f"{type(method).__name__} with the KV policy {method.kv_policy} has no step that can be repeated."
    if model.between is not None or method.listeners:
        return "A replayed step calls neither listeners nor whatever stands between decisions and executors."
    if not model.backbone.rotary.are_static:
        return "The backbone's rotary rows depend on more than the position."
    return None


def _sources(model: ForwardModel) -> list[tuple[Tensor, int]]:
    """The tensors that a recorded step reads besides its own buffers, with their addresses."""
    thresholds, fitted = model.method.thresholds, model.method.fitted
    tensors = [*model.parameters(), *([] if thresholds is None else [thresholds.values])]
    tensors += [] if fitted is None else fitted.state().values()
    return [(tensor, tensor.data_ptr()) for tensor in tensors]


class _Notes(Ledger):
    """A ledger that only keeps the notes of the last step."""

    collects = True
    notes: Tally

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger.costs)

    def defer(self, notes: Deferred) -> None:
        assert isinstance(notes, Tally)
        self.notes = notes


class _Booking:
    """The deferred booking of one step, done when the host knows its decisions."""

    def __init__(self, ledger: Ledger, step: Step, positions: np.ndarray) -> None:
        self._ledger, self._step = ledger, step
        self._tally = step.notes.again(ledger, positions)
        self._tally.book_dense()
        ledger.book_again("decode", step.noted)
        self._values = [] if step.values is None else [step.values.clone()]

    def pending(self) -> list[Tensor]:
        return self._values

    def take(self, values: Sequence[np.ndarray]) -> None:
        parts, start = [], 0
        for tensor in self._tally.pending():
            part = values[0][start : start + tensor.numel()].reshape(tuple(tensor.shape))
            parts.append(part.astype(bool) if tensor.dtype == torch.bool else part)
            start += tensor.numel()
        self._tally.take(parts)


class _Reads(TorchDispatchMode):
    """Keeps alive the tensors that a graph reads but did not create, since the graph only knows their addresses.

    Attributes:
        found: One tensor for each storage.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in self._new((args, kwargs)):
            self.found.append(tensor)
        made = function(*args, **(kwargs or {}))
        list(self._new(made))
        return made

    def _new(self, values: Any) -> list[Tensor]:
        found = [one for one in tree_leaves(values) if isinstance(one, Tensor)]
        new = [one for one in found if one.untyped_storage()._cdata not in self._known]
        self._known.update(one.untyped_storage()._cdata for one in new)
        return new
