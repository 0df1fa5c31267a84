"""Early exit: the base class for methods whose tokens leave the stack early, and the confidence measures they share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from adaptive_bench.backbone import Site, every_branch
from adaptive_bench.method.base import Method
from adaptive_bench.method.site_view import SiteView


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
        """Both branches of every layer from the first exit on."""
        return every_branch(range(self.first_exit, self.backbone_size[0]))

    @property
    def max_saved_tokens(self) -> float:
        """The share of layers from the first exit on."""
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
