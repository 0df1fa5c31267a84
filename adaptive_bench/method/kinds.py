"""Base classes for two kinds of methods: routers, which choose between executing and skipping, and early exits.

A router's choice is sampled in training. It is hard in the forward pass and has the gradient of a soft choice
("Categorical Reparameterization with Gumbel-Softmax", https://arxiv.org/abs/1611.01144).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from adaptive_bench.backbone import Site, every_branch
from adaptive_bench.method.base import Method
from adaptive_bench.method.decisions import EXECUTE_ALL, Decision
from adaptive_bench.method.dial import DialSpec
from adaptive_bench.method.session import draw_key, uniform_from
from adaptive_bench.method.site_view import SiteView


class LogitRouter(Method):
    """Base class of methods whose routers give two logits, for executing and for skipping.

    Training samples a hard choice that has the gradient of a soft one. Inference takes the larger logit; the dial is an
    offset on the execute logit.

    Attributes:
        execute: Index of the execute logit.
    """

    execute: ClassVar[int] = 0
    solves_dial = True
    # 50 exceeds any difference of two logits, so that everybody executes at one end and nobody at the other.
    dial = DialSpec("execute_offset", -50.0, 50.0, 50.0)

    def route(self, view: SiteView, logits: Tensor, *, temperature: float, place: int) -> Decision:
        """The decision from logits [B, S, 2]; see `sampled_choice` for the other arguments."""
        if not view.call.training:
            return EXECUTE_ALL if self.value == self.dial.skip_nothing else Decision(keep=self.runs(logits))
        executed = sampled_choice(self, view, logits, chosen=self.execute, temperature=temperature, place=place)
        view.record(executed=executed)
        # A scale instead of a mask: the gradient of skipping tokens needs their branch's output too.
        return Decision(scale=executed[..., None])

    def runs(self, logits: Tensor) -> Tensor:
        """Boolean [...]: whether executing wins at the current dial, from logits [..., 2]."""
        return logits[..., self.execute] + self.value >= logits[..., 1 - self.execute]


def sampled_choice(
    method: Method,
    view: SiteView,
    logits: Tensor,
    *,
    chosen: int,
    temperature: float,
    place: int,
    counters: Tensor | None = None,
) -> Tensor:
    """Whether side `chosen` of the logits [B, S, 2] wins after noise is added: exactly 0 or 1, [B, S].

    Args:
        temperature: Temperature of the soft choice that gives the gradient.
        place: Number of the router that chooses, unique within the call.
        counters: Counters for the noise, one per choice; by default those of the tokens.
    """
    counters = view.call.draw_counters if counters is None else counters
    soft = ((logits + _noise(method, counters, place)) / temperature).softmax(dim=-1)[..., chosen]
    # Straight-through: the second term is 0 and brings the gradient of `soft`.
    return (soft > 0.5).to(soft) + (soft - soft.detach())


def _noise(method: Method, counters: Tensor, place: int) -> Tensor:
    """Gumbel noise [*, 2] that depends only on counters [*] (document and text), seed, step and place."""
    # Two numbers per place, so the sides of place n draw at the sites 2 n and 2 n + 1 of the key.
    noise = [uniform_from(counters, draw_key(method.seed, method.step, 2 * place + side)) for side in range(2)]
    # Gumbel is -log(-log u); clamped, as u may be 0.
    return -(-torch.stack(noise, dim=-1).clamp(1e-12, 1 - 1e-12).log()).log().float()


class EarlyExit(Method):
    """Base class of methods in which a token leaves before some layer and skips all layers from there on.

    Attributes:
        first_exit: The first layer that a token may skip.
    """

    spares = False
    unit = "layer"
    wants_layer_states = True
    losses_over = "answers"
    first_exit: int

    @property
    def eligible_sites(self) -> frozenset[Site]:
        return every_branch(range(self.first_exit, self.backbone_size[0]))

    @property
    def max_saved_tokens(self) -> float:
        return 1.0 - self.first_exit / self.backbone_size[0]


def leaving_tokens(
    view: SiteView,
    candidates: Tensor,
    previous: Tensor | None,
    passes: Callable[[Tensor, Tensor], Tensor],
    classifier: nn.Module | None = None,
    *,
    final_norm: bool = False,
) -> Tensor:
    """The candidates [B, S] that are confident enough to leave. The cost of the measure is booked for every candidate.

    By default, confidence is the gap between the probabilities of the two likeliest tokens. This runs the head, and the
    probe's logits of a leaving token are its final logits. `classifier` or `previous` selects another measure.

    Args:
        candidates: Boolean [B, S].
        previous: Residual stream [B, S, H] one layer earlier; confidence is the cosine with it.
        passes: Maps confidences [N] and flat token indices [N] to a boolean [N], the tokens that leave.
        classifier: The method's own map from a state to one logit; confidence is its sigmoid.
        final_norm: The classifier reads states after the backbone's final norm.
    """
    fixed = view.call.fixed_shapes
    logits: Tensor | None = None
    among = candidates if fixed else None
    everyone = torch.arange(candidates.numel(), device=candidates.device)
    tokens = everyone if fixed else candidates.flatten().nonzero()[:, 0]  # if fixed, only candidates may leave
    if not tokens.numel():
        return torch.zeros_like(candidates)
    if classifier is not None:
        confidence = view.apply(classifier, tokens, among, final_norm=final_norm)[:, 0].sigmoid()
    elif previous is not None:
        confidence = view.cosine(previous, tokens, among)
    else:
        logits = view.probe(tokens, among)
        confidence = _gap(logits)
    sure = passes(confidence, tokens)
    if fixed:
        leaving = sure.view_as(candidates) & candidates
        # Fixed shapes: the host does not know who leaves, so logits of everybody are kept with a mask.
        if logits is not None:
            view.call.probed.append((leaving, logits))
        return leaving
    if logits is not None:
        view.answer(tokens[sure], logits[sure])
    leaving = torch.zeros_like(candidates).flatten()
    leaving[tokens[sure]] = True
    return leaving.view_as(candidates)


def _gap(logits: Tensor) -> Tensor:
    """Probability of the likeliest token minus that of the second likeliest, [N], from logits [N, V]."""
    top = logits.float().softmax(dim=-1).topk(2, dim=-1).values
    return top[:, 0] - top[:, 1]
