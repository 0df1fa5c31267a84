"""`ForwardCall`: what a method may read and record during one forward call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from adaptive_bench.backbone import Backbone, Site
from adaptive_bench.errors import UsageError
from adaptive_bench.method.decisions import Decision
from adaptive_bench.method.session import Session

Phase = Literal["prefill", "decode"]
Measure = Literal["probe", "cosine", "norm"]  # what a decision may run that is not one of the method's own maps
PROMPT_LENGTH, PROMPT_COUNTERS = "prompt_length", "prompt_counters"
_LEVEL_EPSILON = 1e-6  # added to the mean square


def last_true(mask: Tensor) -> Tensor:
    """[B] the last column at which each row of a boolean mask [B, S] is true; 0 for a row without any."""
    # The largest true column; a row of zeros has its maximum at 0.
    return (mask.long() * torch.arange(mask.shape[1], device=mask.device)).argmax(dim=1)


def label_follows(labels: Tensor) -> Tensor:
    """Boolean [B, S], the tokens whose next token is a label, from labels [B, S] (-100 is no label)."""
    # The last token of a row predicts nothing that was given.
    return functional.pad(labels[:, 1:] != -100, (0, 1))


def levelled(states: Tensor) -> Tensor:
    """States [..., H], each divided by its root mean square, in fp32 and without weights."""
    return functional.rms_norm(states.float(), states.shape[-1:], eps=_LEVEL_EPSILON)


@dataclass(kw_only=True)
class ForwardCall:
    """One forward call of B rows and S tokens, as a method sees it.

    Attributes:
        backbone: The model that runs.
        input_ids: [B, S].
        valid: [B, S] real tokens (padding is False).
        host_valid: The same as a NumPy array, which Python can read without waiting for a device.
        positions: [B, S] position in the sequence, 0 for padding.
        continuation: [B, S] tokens after the prompt.
        session: State that the requests carry from call to call.
        phase: `decode` if tokens are generated one by one, else `prefill`.
        training: Whether the model is being trained.
        draws: Whether the method declares that it draws at random outside training; see `Method`.
        labels: [B, S] in a training call, else `None`.
        layer_states: Residual stream after each layer, for methods whose losses need it; else `None`.
        records: Tensors that the method recorded for its losses, by name.
        answers: Pairs of flat token indices [N] and their final logits [N, V], from probes.
        probed: The same with fixed shapes: pairs of masks [B, S] of the tokens, and logits [B S, V] of all tokens.
        scratch: Tensors that a method carries from layer to layer within this call.
        spread: Gathers rows [N, ...] from the processes that share a training batch, in its order; `None` if one
            process has all of it.
        only_follows: The host knows that every token follows a prompt which an earlier call read.
        again: In training, runs the call's tokens once more with the given decisions, one per layer, and returns the
            residual stream [B, S, H] after the last layer, without gradient. Used to search for labels of routers.
        ahead: Decisions known before the layers run, one per site in execution order; see `Method.decide_ahead`.
    """

    backbone: Backbone
    input_ids: Tensor
    valid: Tensor
    host_valid: np.ndarray
    positions: Tensor
    continuation: Tensor
    session: Session
    phase: Phase
    training: bool
    draws: bool
    labels: Tensor | None = None
    layer_states: list[Tensor] | None = None
    records: dict[str, list[Tensor]] = field(default_factory=dict)
    answers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    probed: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    scratch: dict[str, Tensor] = field(default_factory=dict)
    again: Callable[[Sequence[Decision]], Tensor] | None = None
    ahead: Sequence[Decision] | None = None
    spread: Callable[[Tensor], Tensor] | None = None
    only_follows: bool = False

    @cached_property
    def all_valid(self) -> bool:
        """Whether the call has no padding."""
        return np.count_nonzero(self.host_valid) == self.host_valid.size

    @property
    def fixed_shapes(self) -> bool:
        """Whether shapes must not depend on decisions, since Python would have to wait for the device to know them."""
        return False

    @cached_property
    def prefix_hash(self) -> Tensor:
        """[B, S] 64-bit hash of each token's prefix, including the token; equal texts have equal hashes."""
        if not (self.draws or self.training):
            raise UsageError(
                "A method that draws at random outside training has to declare it, so that the harness shares no "
                "result among documents. Set draws = True in its class, and draw from view.call.draw_counters."
            )
        return self.session.prefix_hashes(self.input_ids, None if self.all_valid else self.valid)

    @cached_property
    def draw_counters(self) -> Tensor:
        """[B, S] 64-bit counters to draw random numbers from (`uniform_from`), from each token's document and prefix.

        They are the same with or without a cache and in any batch, and do not depend on later tokens. They differ
        between documents even if the texts are alike (few-shot examples, templates, equal questions), provided that the
        caller names the documents (`documents`), as the harness and the training loop do. Otherwise they depend on the
        text alone, and texts with a common beginning share its counters.
        """
        # The sum may wrap around; `uniforms_from` scrambles it in any case.
        return self.prefix_hash + self.session.documents[:, None]

    @cached_property
    def continuation_step(self) -> Tensor:
        """[B, S] each token's number counted from the prompt's end: 1 for the first one after it, below 1 inside."""
        return self.positions - self.prompt_length[:, None] + 1

    @cached_property
    def prompt_length(self) -> Tensor:
        """[B] number of tokens of the prompt, as the session's first call gave them."""
        known = self.session.state.get(PROMPT_LENGTH)
        # The first call's own count; `EngineCall.end` stores it for the calls that follow.
        return (self.valid & ~self.continuation).sum(dim=1) if known is None else known

    @cached_property
    def context(self) -> Tensor:
        """[B, S] real tokens of the prompt. In a text without a prompt, the first token counts as its prompt."""
        return self.valid & (~self.continuation | (self.positions == 0))

    @cached_property
    def follows(self) -> Tensor:
        """[B, S] real tokens after the `context`."""
        return self.valid & ~self.context

    @cached_property
    def reads_prompt(self) -> bool:
        """Whether any token of this call belongs to a `context`. Reads it from the device, unless the host knows it."""
        return not self.only_follows and bool(self.context.any())

    @cached_property
    def prompt_counters(self) -> Tensor:
        """[B] the `draw_counters` of the last token of each row's `context`, kept for the tokens that follow, so that a
        whole answer shares one draw. Read them first in the call that reads the prompt.
        """
        known = self.session.state.get(PROMPT_COUNTERS)
        if known is None:
            last = last_true(self.context)[:, None]
            known = self.session.state[PROMPT_COUNTERS] = self.draw_counters.gather(1, last)[:, 0]
        return known

    @cached_property
    def writing(self) -> Tensor:
        """[B, S] real tokens that predict a token of the answer: the prompt's last token, and those of the answer."""
        return self.valid & (self.continuation_step >= 0)

    @cached_property
    def writes(self) -> Tensor:
        """[B, S] tokens of a training call from which a label is predicted: those whose next token is a label."""
        assert self.labels is not None
        return label_follows(self.labels)

    @cached_property
    def real(self) -> Tensor:
        """Flat indices [N] of the real tokens, which the host knows."""
        return torch.from_numpy(np.flatnonzero(self.host_valid)).to(self.valid.device)

    @cached_property
    def written_from(self) -> Tensor:
        """Flat indices [N] of the tokens of `writes`; searched once per call, and not at all if the host knows them."""
        return self.writes.flatten().nonzero()[:, 0]

    def of_real(self, values: Tensor) -> Tensor:
        """The values [N, ...] of the real tokens, from values [B, S, ...]: what losses average over."""
        return values.flatten(0, 1).index_select(0, self.real)

    def of_written(self, values: Tensor) -> Tensor:
        """The values [N, ...] of the tokens from which a label is predicted, from values [B, S, ...]."""
        return values.flatten(0, 1).index_select(0, self.written_from)

    def whole(self, rows: Tensor) -> Tensor:
        """The rows [N, ...] of this process's tokens, joined with those of the other processes that train on the batch.

        Losses average over these rows, so that they do not depend on the number of processes.
        """
        return rows if self.spread is None else self.spread(rows)

    def cross_entropy(self, hidden: Tensor) -> Tensor:
        """Mean cross entropy of the labels if the residual stream [B, S, H] ended here."""
        return self.cross_entropies([hidden], [1.0])

    def cross_entropies(self, states: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        """Weighted sum of the mean cross entropies of the labels if the residual stream [B, S, H] ended at each state.

        If the logits of all states would be large, they are computed in chunks of tokens and not kept for the backward
        pass.
        """
        assert self.labels is not None
        # The next flat index is in the same row, since no row's last token is in `written_from`.
        targets = self.labels.flatten()[self.written_from + 1]
        values = len(states) * len(targets) * self.backbone.vocab_size
        # Not with several processes: their rows have to be gathered before the mean.
        if self.spread is None and values > LARGE:
            return chunked_cross_entropies(self.backbone, list(map(self.of_written, states)), weights, targets)
        parts = [weight * self._cross_entropy(state, targets) for state, weight in zip(states, weights, strict=True)]
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum()

    def _cross_entropy(self, hidden: Tensor, targets: Tensor) -> Tensor:
        logits = self.backbone.head(self.backbone.final_norm(self.of_written(hidden)))
        if self.spread is None:
            return functional.cross_entropy(logits.float(), targets)
        # Gathers one number per token rather than V logits.
        return self.whole(functional.cross_entropy(logits.float(), targets, reduction="none")).mean()

    def likeliest(self, written: Tensor) -> Tensor:
        """The likeliest tokens [N] after states [N, H], computed in chunks of states."""
        head, norm = self.backbone.head, self.backbone.final_norm
        some = max(1, LARGE // 4 // self.backbone.vocab_size)  # states per chunk
        return torch.cat([head(norm(part)).argmax(dim=-1) for part in written.split(some)])

    def normalise(self, site: Site, hidden: Tensor) -> Tensor:
        """The residual stream [..., H] after the pre-norm, or `levelled` if the family has none."""
        norm = self.backbone.norm_before(site)
        return levelled(hidden).type_as(hidden) if norm is None else norm(hidden)

    def book_measure(self, layer: int, what: Measure, tokens: Tensor, among: Tensor | None = None) -> None:
        """Book that a decision runs the head, or takes a cosine of two states or a norm of one, for each of the tokens
        at flat indices [N]. Overridden where work is counted.

        Args:
            among: Boolean [B, S], the tokens that had to be decided, if fixed shapes made all tokens run.
        """

    def note_rescale(self, states: int) -> None:
        """Note that `states` states are multiplied by a number instead of a branch. Overridden as `book_measure`."""

    def run_map(
        self, layer: int, network: nn.Module, states: Tensor, tokens: Tensor, among: Tensor | None = None
    ) -> Tensor:
        """Outputs [N, O] of one of the method's maps for states [N, H] of the tokens at flat indices [N]."""
        return network(states)


LARGE = 1 << 26  # up to this many logits (256 MB in fp32) are computed at once
_AT_ONCE = 1 << 24  # logits of one chunk


def chunked_cross_entropies(
    backbone: Backbone, states: Sequence[Tensor], weights: Sequence[float], targets: Tensor
) -> Tensor:
    """Weighted sum of the mean cross entropies of targets [N], predicted from each of the states [N, H]."""
    # Given as arguments, since autograd passes gradients to arguments alone.
    read = [*backbone.decoder.norm.parameters(), *backbone.model.lm_head.parameters()]
    return _Chunked.apply(backbone, tuple(weights), targets, len(states), *states, *read)


class _Chunked(torch.autograd.Function):
    """Computes the loss and its gradients in one pass over chunks of tokens, so that no chunk's logits are kept."""

    @staticmethod
    def forward(
        context: Any, backbone: Backbone, weights: tuple[float, ...], targets: Tensor, count: int, *tensors: Tensor
    ) -> Tensor:
        states, read = tensors[:count], tensors[count:]
        wanted = context.needs_input_grad[4:]  # after backbone, weights, targets and count
        learned = [tensor for tensor, learns in zip(read, wanted[count:], strict=True) if learns]
        # `wanted` goes on with the parameters, so it is longer than the states.
        gradients = [torch.empty_like(one) if learns else None for one, learns in zip(states, wanted, strict=False)]
        sums = [torch.zeros_like(one) for one in learned]
        loss = torch.zeros((), device=targets.device)
        some = max(1, _AT_ONCE // backbone.vocab_size)  # tokens per chunk
        for state, weight, gradient in zip(states, weights, gradients, strict=True):
            for start in range(0, len(targets), some):
                part = slice(start, start + some)
                # Autograd is off inside `forward`. Here each chunk gets a graph of its own, and its gradients at once.
                with torch.enable_grad():
                    hidden = state[part].detach().requires_grad_(gradient is not None)
                    logits = backbone.head(backbone.final_norm(hidden)).float()
                    value = functional.cross_entropy(logits, targets[part], reduction="sum") * (weight / len(targets))
                loss += value.detach()
                asked = [*([] if gradient is None else [hidden]), *learned]
                if asked:
                    found = torch.autograd.grad(value, asked)
                    if gradient is not None:
                        gradient[part], found = found[0], found[1:]
                    for total, one in zip(sums, found, strict=True):
                        total += one
                del logits, value  # before the next chunk's logits are made: they are what takes the memory
        # In the order of the arguments, with `None` for what does not learn.
        of_read = iter(sums)
        context.gradients = [*gradients, *(next(of_read) if learns else None for learns in wanted[count:])]
        return loss

    @staticmethod
    @once_differentiable
    def backward(context: Any, scale: Tensor) -> tuple[Any, ...]:
        # By the chain rule: `forward` found the gradients of the loss itself.
        gradients = [None if one is None else one.mul_(scale) for one in context.gradients]
        context.gradients = []
        return None, None, None, None, *gradients
