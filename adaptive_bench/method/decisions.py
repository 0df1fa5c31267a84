"""Decisions, the rules that turn scores into decisions, and the checks that a running model makes on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adaptive_bench.errors import PluginFault, in_plugin


@dataclass(frozen=True)
class Decision:
    """A method's answer for one site.

    Attributes:
        keep: Boolean [B, S], the tokens that execute; `None` means all.
        scale: [B, S, 1] or [B, S, H], multiplies what executing tokens add to the residual stream; `None` means 1.
        input_scale: [B, S, 1] or [B, S, H], multiplies the input of the branch (after its pre-norm); keys and values
            are projected from the scaled input. `None` means 1.
        otherwise: The replacement for the branch at skipping tokens: maps flat indices [N] of such tokens to what is
            added to their residual stream, [N, H]. It is called after the branch, for as few tokens as the executor
            can. Its linear maps are metered, and booked as `overhead.adapter` for skipping tokens only. The KV policy
            still decides about the keys and values of these tokens. In training `keep` may be `None`; `otherwise` is
            then called for all tokens. A choice with a gradient on both sides scales the branch by e and this by 1 - e.
        soft: In training, `keep` matters to the KV policy only: the branch is computed and scaled for skipping tokens
            too. A scale that is 0 for them, with the gradient of a choice, then learns what executing would have been
            worth.
        nobody: `keep` is False everywhere, and the host knows it without reading the tensor; see `skip_all`.
    """

    keep: Tensor | None = None
    scale: Tensor | None = None
    input_scale: Tensor | None = None
    otherwise: Callable[[Tensor], Tensor] | None = None
    soft: bool = False
    nobody: bool = False

    @classmethod
    def skip_all(cls, valid: Tensor) -> Decision:
        """The decision that no token of a call [B, S] executes."""
        return cls(keep=torch.zeros_like(valid, dtype=torch.bool), nobody=True)


EXECUTE_ALL = Decision()


def paper_quantile_keep(scores: Tensor, active: Tensor, q: float) -> Tensor:
    """Keep mask [B, S] of the paper's rule: a token skips if its score <= the quantile over all active tokens."""
    scores = scores.float()
    return active & (scores.double() > _quantile(scores.flatten(), active.flatten(), q))


def _quantile(values: Tensor, among: Tensor, q: float) -> Tensor:
    """QuantileThreshold as in the paper (GateSkip, Algorithm 3), of the values [n] selected by `among` [n]: linear
    between order statistics, at q = 1 the last one. A scalar on their device; undefined if none is selected.
    """
    # Values that do not count go to the end, where no position up to `last` reaches them.
    ordered = values.masked_fill(~among, math.inf).sort().values.double()
    last = (among.sum() - 1).clamp(min=0)
    position = q * last.double()
    whole = position.round()
    position = torch.where((position - whole).abs() < 1e-9, whole, position)  # 0.57 * 100 is to be 57, not 56.99...
    lower = torch.minimum(position.floor(), last).long()
    ends = torch.stack([lower, torch.minimum(lower + 1, last)])
    low, high = ordered.index_select(0, ends)  # indexing with a scalar tensor would make Python wait for its value
    return torch.where(low == high, low, low + (position - lower) * (high - low))


def drop_lowest(scores: Tensor, active: Tensor, q: float) -> Tensor:
    """Keep mask that drops exactly floor(q n) of the call's n active tokens: those with the lowest scores, and earlier
    tokens first in ties.

    Args:
        scores: [B, S].
        active: Boolean [B, S]; inactive tokens are neither counted nor kept.
        q: Share to drop in [0, 1].
    """
    flat_active = active.flatten()
    # 1e-9 makes up for rounding: 0.29 * 100 is 28.999..., and 29 tokens are to be dropped. The number stays on the
    # device, so that the host need not wait.
    drop = (q * flat_active.sum().double() + 1e-9).floor()
    order = scores.float().flatten().masked_fill(~flat_active, math.inf).argsort(stable=True)
    # Inactive tokens have the score inf, so they come after all active ones.
    places = torch.arange(len(order), device=order.device)
    keep = torch.empty_like(flat_active).scatter_(0, order, places >= drop)
    return keep.view_as(active) & active


def drop_lowest_by_phase(scores: Tensor, active: Tensor, continuation: Tensor, q: float) -> Tensor:
    """`drop_lowest` for prompt tokens and continuation tokens separately, since each phase has its own thresholds.

    Args:
        scores: [B, S].
        active: Boolean [B, S].
        continuation: Boolean [B, S], tokens after the prompt.
        q: Share to drop in [0, 1].
    """
    return drop_lowest(scores, active & ~continuation, q) | drop_lowest(scores, active & continuation, q)


def drop_lowest_per_row(scores: Tensor, active: Tensor, q: float, uniform: Tensor) -> Tensor:
    """Keep mask that drops floor(q n + u) of each row's n active tokens: those with the lowest scores, and earlier
    tokens first in ties.

    With u uniform in [0, 1) a row drops the share q in the mean, however short it is, and no row depends on another.

    Args:
        scores: [B, S].
        active: Boolean [B, S]; inactive tokens are neither counted nor kept.
        q: Share to drop in [0, 1].
        uniform: [B], each row's u.
    """
    drop = (q * active.sum(dim=1).double() + uniform).floor()
    return active & (_rank((-scores.float()).masked_fill(~active, -math.inf)) >= drop[:, None])


def top_k_per_row(scores: Tensor, active: Tensor, capacity: float) -> Tensor:
    """Keep mask of the k = max(1, floor(capacity S_b)) highest scores of each row with S_b active tokens (k = 0 if S_b
    = 0).

    Args:
        scores: [B, S].
        active: Boolean [B, S].
        capacity: Share of each row in (0, 1].
    """
    lengths = active.sum(dim=1)
    # As in `drop_lowest`; `minimum` gives a row without active tokens k = 0.
    k = (capacity * lengths.double() + 1e-9).floor().long().clamp(min=1).minimum(lengths)
    return active & (_rank(scores.float().masked_fill(~active, -math.inf)) < k[:, None])


def _rank(scores: Tensor) -> Tensor:
    """Rank of each score in its row [B, S], 0 for the highest; equal scores keep their order."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    places = torch.arange(order.shape[1], device=order.device).expand_as(order)
    # The inverse of the permutation `order`.
    return torch.empty_like(order).scatter_(1, order, places)


def check_decision(decision: object, hidden: Tensor, method: object) -> None:
    """Raise a fault unless this is a valid decision about hidden states [B, S, H]."""
    if not isinstance(decision, Decision):
        raise _fault(method, "decide", "a Decision", decision, "Return Decision(keep=...) or EXECUTE_ALL.")
    (rows, tokens, width), keep = hidden.shape, decision.keep
    if keep is not None and not (
        isinstance(keep, Tensor) and keep.dtype == torch.bool and keep.shape == (rows, tokens)
    ):
        wanted = f"a Decision whose keep is a boolean tensor of shape {(rows, tokens)} (rows, tokens)"
        raise _fault(method, "decide", wanted, keep, "Compare scores of shape [B, S] with a threshold.")
    for name in ("scale", "input_scale"):
        scale, shapes = getattr(decision, name), ((rows, tokens, 1), (rows, tokens, width))
        if scale is not None and not (
            isinstance(scale, Tensor) and scale.is_floating_point() and scale.shape in shapes
        ):
            wanted = f"a Decision whose {name} has floating-point numbers of the shape {shapes[0]} or {shapes[1]}"
            raise _fault(method, "decide", wanted, scale, "Give such a tensor, or None.")


def check_ahead(ahead: Sequence[Decision], sites: int, method: object) -> None:
    """Raise a fault unless `Method.decide_ahead` gave one decision for each of the `sites` sites."""
    if len(ahead) != sites:
        wanted = f"None or {sites} decisions, one for each site in execution order"
        raise _fault(method, "decide_ahead", wanted, len(ahead), "Give EXECUTE_ALL where every token executes.")


def check_instead(output: object, tokens: int, width: int, method: object) -> None:
    """Raise a fault unless this is a valid output of `Decision.otherwise` for `tokens` tokens."""
    if not (isinstance(output, Tensor) and output.shape == (tokens, width)):
        wanted = f"a Decision whose otherwise gives numbers of shape {(tokens, width)} (tokens asked for, width)"
        raise _fault(method, "decide", wanted, output, "Index states with the flat indices it is called with.")


def _fault(method: object, hook: str, wanted: str, got: object, step: str) -> PluginFault:
    name, place, file = in_plugin(type(method)).partition(" (")
    kind = f"{got.dtype} of shape {tuple(got.shape)}" if isinstance(got, Tensor) else type(got).__name__
    # A number of decisions is told itself, and not as `int`.
    kind = str(got) if isinstance(got, int) and not isinstance(got, bool) else kind
    return PluginFault(f"{name}.{hook}{place}{file} must give {wanted}, got {kind}. {step}")
