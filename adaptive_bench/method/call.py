"""What a method may know of one forward call: which tokens are real, where they stand, what was noted so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from adaptive_bench.backbone import Backbone, Site
from adaptive_bench.errors import UsageError
from adaptive_bench.method.decisions import Decision, Spread
from adaptive_bench.method.session import Session

Phase = Literal["prefill", "decode"]
PROMPT_LENGTH, PROMPT_COUNTERS = "prompt_length", "prompt_counters"
_LEVEL_EPSILON = 1e-6


def last_true(mask: Tensor) -> Tensor:
    """[B] the last column at which each row of a boolean mask [B, S] is true; 0 where none is."""
    return (mask.long() * torch.arange(mask.shape[1], device=mask.device)).argmax(dim=1)


def label_follows(labels: Tensor) -> Tensor:
    """Boolean [B, S], the tokens whose next one is a label, of labels [B, S]."""
    return functional.pad(labels[:, 1:] != -100, (0, 1))


def levelled(states: Tensor) -> Tensor:
    """States [..., H], each divided by its root mean square: fp32, without weights."""
    return functional.rms_norm(states.float(), states.shape[-1:], eps=_LEVEL_EPSILON)


@dataclass(kw_only=True)
class ForwardCall:
    """One forward call of B rows and S tokens, as a method sees it.

    Attributes:
        backbone: The model that runs.
        input_ids: [B, S].
        valid: [B, S] real tokens (padding is False).
        positions: [B, S] position in the sequence, 0 for padding.
        continuation: [B, S] tokens after the prompt.
        session: What the requests carry from call to call.
        phase: `decode` if tokens are written one by one, else `prefill`.
        training: Whether the model trains.
        draws: Whether the method says that it draws at random where it does not train; see `Method`.
        labels: [B, S] of a training call, else `None`.
        layer_states: Residual stream after each layer, for methods whose losses need it; else `None`.
        records: What a method noted for its losses, by name.
        answers: Flat token indices [N] and their final logits [N, V] where a probe already gave them.
        probed: The same where shapes are fixed: masks [B, S] of the tokens, and logits [B S, V] of all of them.
        scratch: What a method carries from layer to layer within this call.
        spread: Puts together what several processes have of a training batch; `None` where one process has it all.
        again: In training, runs the call's tokens once more, with given decisions, one per layer: their residual stream
            [B, S, H] after the last one, without gradient. What a search for labels asks.
        ahead: Decisions known before the layers run, one per site in execution order; see `Method.decide_ahead`.
    """

    backbone: Backbone
    input_ids: Tensor
    valid: Tensor
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
    spread: Spread | None = None

    @property
    def all_valid(self) -> bool:
        """Whether the call is known to have no padding."""
        return False

    @property
    def fixed_shapes(self) -> bool:
        """Whether no decision may set a shape, because Python would have to wait for the device to know it."""
        return False

    @cached_property
    def prefix_hash(self) -> Tensor:
        """[B, S] 64-bit hash of each token's prefix, itself included: equal texts hash alike."""
        if not (self.draws or self.training):
            raise UsageError(
                "A method that draws at random outside of training has to say so: the harness then computes nothing "
                "once for several documents. Set draws = True in its class, and draw from view.call.draw_counters."
            )
        return self.session.prefix_hashes(self.input_ids, None if self.all_valid else self.valid)

    @cached_property
    def draw_counters(self) -> Tensor:
        """[B, S] 64-bit counters to draw random numbers from (`uniform_from`): of each token's document and prefix.

        They are the same with or without a cache and in any batch, they know nothing of later tokens, and they differ
        from document to document even where the texts are alike: few-shot examples, templates, equal questions. Who
        knows the documents names them in the call (`documents`), as the harness and the training loop do. Where
        nobody does, they are those of the text alone, and texts share the counters of a common beginning.
        """
        return self.prefix_hash + self.session.documents[:, None]

    @cached_property
    def continuation_step(self) -> Tensor:
        """[B, S] how many tokens after the prompt's end a token stands; below 1 inside the prompt."""
        return self.positions - self.prompt_length[:, None] + 1

    @cached_property
    def prompt_length(self) -> Tensor:
        """[B] tokens of the prompt, which is what the session's first call says."""
        known = self.session.state.get(PROMPT_LENGTH)
        return (self.valid & ~self.continuation).sum(dim=1) if known is None else known

    @cached_property
    def context(self) -> Tensor:
        """[B, S] real tokens of the prompt; of a text without one its first token, which the others follow from."""
        return self.valid & (~self.continuation | (self.positions == 0))

    @cached_property
    def follows(self) -> Tensor:
        """[B, S] real tokens after the `context`."""
        return self.valid & ~self.context

    @cached_property
    def reads_prompt(self) -> bool:
        """Whether any token of this call is of a `context`. Reads that from the device, unless the host knows."""
        return bool(self.context.any())

    @cached_property
    def prompt_counters(self) -> Tensor:
        """[B] the `draw_counters` of the last token of each row's `context`, kept for all that follows it: what is
        drawn from them is drawn once for a whole answer. Ask for them in the call that reads the prompt.
        """
        known = self.session.state.get(PROMPT_COUNTERS)
        if known is None:
            last = last_true(self.context)[:, None]
            known = self.session.state[PROMPT_COUNTERS] = self.draw_counters.gather(1, last)[:, 0]
        return known

    @cached_property
    def writing(self) -> Tensor:
        """[B, S] real tokens that a token of the answer is read off: the prompt's last one, and the answer's own."""
        return self.valid & (self.continuation_step >= 0)

    @cached_property
    def writes(self) -> Tensor:
        """[B, S] tokens of a training call from which a label is predicted: the next token is one."""
        assert self.labels is not None
        return label_follows(self.labels)

    @cached_property
    def real(self) -> Tensor:
        """Flat indices [N] of the real tokens; looked for once in a call, and not at all where the host knows them."""
        return self.valid.flatten().nonzero()[:, 0]

    @cached_property
    def written_from(self) -> Tensor:
        """Flat indices [N] of the tokens `writes`; likewise."""
        return self.writes.flatten().nonzero()[:, 0]

    def of_real(self, values: Tensor) -> Tensor:
        """Of values [B, S, ...] those of the real tokens, [N, ...]: what losses average over."""
        return values.flatten(0, 1).index_select(0, self.real)

    def of_written(self, values: Tensor) -> Tensor:
        """Of values [B, S, ...] those of the tokens that a label is predicted from, [N, ...]."""
        return values.flatten(0, 1).index_select(0, self.written_from)

    def whole(self, rows: Tensor) -> Tensor:
        """Rows [N, ...] of tokens, with those of the other processes that train on the batch.

        What a loss averages over tokens is taken of these: then it is the same for any number of processes.
        """
        return rows if self.spread is None else self.spread.rows(rows)

    def cross_entropy(self, hidden: Tensor) -> Tensor:
        """Mean cross entropy of the labels if the residual stream [B, S, H] ended here."""
        return self.cross_entropies([hidden], [1.0])

    def cross_entropies(self, states: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        """Weighted sum of the mean cross entropies of the labels if the residual stream [B, S, H] ended at each state.

        Where the logits of all of them would be large, they are made for some tokens at a time and live once.
        """
        assert self.labels is not None
        targets = self.labels.flatten()[self.written_from + 1]
        values = len(states) * len(targets) * self.backbone.vocab_size
        if self.spread is None and values > LARGE:
            return chunked_cross_entropies(self.backbone, list(map(self.of_written, states)), weights, targets)
        parts = [weight * self._cross_entropy(state, targets) for state, weight in zip(states, weights, strict=True)]
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum()

    def _cross_entropy(self, hidden: Tensor, targets: Tensor) -> Tensor:
        logits = self.backbone.head(self.backbone.final_norm(self.of_written(hidden)))
        if self.spread is None:
            return functional.cross_entropy(logits.float(), targets)
        return self.whole(functional.cross_entropy(logits.float(), targets, reduction="none")).mean()

    def likeliest(self, written: Tensor) -> Tensor:
        """Tokens [N] that the head gives the most for states [N, H], which are asked some at a time."""
        head, norm = self.backbone.head, self.backbone.final_norm
        some = max(1, LARGE // 4 // self.backbone.vocab_size)
        return torch.cat([head(norm(part)).argmax(dim=-1) for part in written.split(some)])

    def normalise(self, site: Site, hidden: Tensor) -> Tensor:
        """The residual stream [..., H] after the pre-norm, or `levelled` where the family has none."""
        norm = self.backbone.norm_before(site)
        return levelled(hidden).type_as(hidden) if norm is None else norm(hidden)

    def book_probe(self, layer: int, tokens: Tensor, among: Tensor | None = None) -> None:
        """The head is run for the tokens at flat indices [N] in order to decide. Overridden where work is counted.

        Args:
            among: Boolean [B, S], the tokens that had to be decided, where all were run for a fixed shape.
        """

    def book_cosine(self, layer: int, tokens: Tensor, among: Tensor | None = None) -> None:
        """A cosine of two states is taken for each of the tokens at flat indices [N]. Overridden likewise."""

    def book_norm(self, layer: int, tokens: Tensor) -> None:
        """A norm of one state is taken for each of the tokens at flat indices [N]. Overridden likewise."""

    def note_rescale(self, states: int) -> None:
        """So many states are multiplied by a number instead of a branch. Overridden likewise."""

    def run_map(
        self, layer: int, network: nn.Module, states: Tensor, tokens: Tensor, among: Tensor | None = None
    ) -> Tensor:
        """Outputs [N, O] of one of the method's maps for states [N, H] of the tokens at flat indices [N]."""
        output: Tensor = network(states)
        return output


LARGE = 1 << 26  # logits that are not worth a second thought: 256 MB
_AT_ONCE = 1 << 24


def chunked_cross_entropies(
    backbone: Backbone, states: Sequence[Tensor], weights: Sequence[float], targets: Tensor
) -> Tensor:
    """Weighted sum of the mean cross entropies of targets [N] predicted from states [N, H] each."""
    read = [*backbone.decoder.norm.parameters(), *backbone.model.lm_head.parameters()]
    loss: Tensor = _Chunked.apply(backbone, tuple(weights), targets, len(states), *states, *read)
    return loss


class _Chunked(torch.autograd.Function):
    """Loss and, where one is wanted, gradient at once."""

    @staticmethod
    def forward(
        context: Any, backbone: Backbone, weights: tuple[float, ...], targets: Tensor, count: int, *tensors: Tensor
    ) -> Tensor:
        states, read = tensors[:count], tensors[count:]
        wanted = context.needs_input_grad[4:]
        learned = [tensor for tensor, learns in zip(read, wanted[count:], strict=True) if learns]
        gradients = [torch.empty_like(one) if learns else None for one, learns in zip(states, wanted, strict=False)]
        sums = [torch.zeros_like(one) for one in learned]
        loss = torch.zeros((), device=targets.device)
        some = max(1, _AT_ONCE // backbone.vocab_size)
        for state, weight, gradient in zip(states, weights, gradients, strict=True):
            for start in range(0, len(targets), some):
                part = slice(start, start + some)
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
                del logits, value
        of_read = iter(sums)
        context.gradients = [*gradients, *(next(of_read) if learns else None for learns in wanted[count:])]
        return loss

    @staticmethod
    @once_differentiable
    def backward(context: Any, scale: Tensor) -> tuple[Any, ...]:
        gradients = [None if one is None else one.mul_(scale) for one in context.gradients]
        context.gradients = []
        return None, None, None, None, *gradients
