"""Fitted values: what a method measures on held-out text before its dial is used, such as scales that replace branches
or the layers that matter least.

The values are measured with the model's current weights, so like thresholds they hold for these weights and this text
only. `adaptive_bench.model.calibration` gives a method the text.

The rules that choose layers to leave out return a table [L + 1, L]: row n marks the n layers to leave out. Let h_l be
the residual stream before layer l, and h_L the stream after the last layer (before the final norm):

* `bi`: the layers with the lowest Block Influence 1 - E cos(h_l, h_{l+1}) over tokens (ShortGPT, arXiv 2403.03853).
* `angular`: the n consecutive layers from l on with the smallest mean arccos cos(h_l, h_{l+n}) / pi over the last
  tokens of texts (Gromov et al., arXiv 2403.17887).
* `ppl`: greedy choice; each further layer is the one whose removal gives the lowest loss. Shortened LLaMA (arXiv
  2402.02834) instead measures each layer once, in the whole model, and always keeps the first four and the last two.
* `search`: the best of all sets of n layers if their number is within the budget. Otherwise it starts from the set of
  `ppl` and exchanges one layer for another while the loss falls, measuring at most `budget` losses for each n. So on
  this text it is never worse than `ppl`.

Ties go to the lower layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.method.decisions import Decision
from adaptive_bench.method.site_view import SiteView


class Streams(NamedTuple):
    """The residual stream of the N real tokens of some texts.

    Attributes:
        states: The stream [N, H] before every site at which the method decides, in execution order, and after the last.
        ends: Boolean [N], the last token of each text.
        prompts: Boolean [N], the tokens of prompts.
    """

    states: list[Tensor]
    ends: Tensor
    prompts: Tensor


class HeldOutText(Protocol):
    """Held-out training text, read by the method's model."""

    def streams(self) -> Iterator[Streams]:
        """The residual streams, a few texts at a time, while every token executes everything."""

    def loss(self) -> float:
        """Mean cross entropy in nats with the method's current decisions, over the tokens that follow the prompts (over
        the whole text if it has no prompt). Long collections are thinned out, always to the same texts.
        """


class Fitted:
    """Named tensors that are measured together; empty before the measurement.

    Args:
        names: Names of the tensors.
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        self._values: dict[str, Tensor] = {}

    @property
    def is_ready(self) -> bool:
        """Whether the tensors were measured."""
        return bool(self._values)

    def __getitem__(self, name: str) -> Tensor:
        """The tensor `name`."""
        if name not in self._values:
            raise UsageError(
                f"A dial that skips needs values measured on held-out text ({', '.join(self.names)}), got none "
                "measured. Call model.calibrate(batches, savings) first."
            )
        return self._values[name]

    def set(self, **values: Tensor) -> None:
        """Store the measured tensors."""
        if set(values) != set(self.names):
            raise PluginFault(
                f"The tensors {', '.join(self.names)} are measured together, got {', '.join(values) or 'nothing'}. "
                "Give `fitted.set` all of them at once."
            )
        self._values = dict(values)

    def state(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint."""
        return dict(self._values)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore the tensors from `state`."""
        self._values = dict(state)

    def clear(self) -> None:
        """Forget the tensors (the weights changed)."""
        self._values = {}


Compensation = Literal["none", "scale"]


def site_scales(text: HeldOutText) -> Tensor:
    """[sites] least-squares scale from each site's input h to its output h': sum <h, h'> / sum <h, h>; 1 if h is 0."""
    sums: list[Tensor] = []
    for states, *_ in text.streams():
        # Double precision: the sums run over every number of every token.
        pairs = [(one.double(), other.double()) for one, other in pairwise(states)]
        sums.append(torch.stack([torch.stack([(h * out).sum(), h.square().sum()]) for h, out in pairs]).cpu())
    products, squares = torch.stack(sums).sum(dim=0).T
    return torch.where(squares > 0, products / squares.where(squares > 0, 1.0), 1.0)


def compensated(view: SiteView, decision: Decision, fitted: Fitted) -> Decision:
    """The decision with (s - 1) h added for skipping tokens, so that they continue with s h; unchanged in training.
    `fitted` holds the `scales` [sites] that `site_scales` gives.
    """
    if decision.keep is None or view.call.training:
        return decision
    site = view.site.layer if view.site.branch == "layer" else view.site.number
    # Looked up only when a token skips: no token does while the scales are being fitted.
    return replace(decision, otherwise=lambda tokens: view.rescaled(fitted["scales"][site], tokens))


LayerRule = Literal["bi", "angular", "ppl", "search"]
Loss = Callable[[frozenset[int]], float]


def layers_to_leave_out(rule: LayerRule, text: HeldOutText, loss: Loss, layers: int, budget: int) -> Tensor:
    """Boolean [L + 1, L], the layers that a rule leaves out, for every number of layers to leave out.

    Args:
        text: Held-out text, read by the whole model.
        loss: Loss on the same text of the model without the given layers.
        budget: Losses that `search` may measure for each number of layers.
    """
    if rule == "bi":
        order = block_influence(text).argsort(stable=True).tolist()
        return _table(order[:count] for count in range(len(order) + 1))
    if rule == "angular":
        return by_angle(text)
    return by_loss(loss, layers) if rule == "ppl" else by_search(loss, layers, budget)


def block_influence(text: HeldOutText) -> Tensor:
    """[L] mean over tokens of 1 - cos(input, output) of each layer."""
    total, tokens = torch.zeros(1, dtype=torch.float64), 0  # widens to [L] with the first texts
    for states, *_ in text.streams():
        pairs = ((one.float(), other.float()) for one, other in pairwise(states))  # one pair in memory at a time
        scores = torch.stack([1.0 - functional.cosine_similarity(*pair, dim=-1) for pair in pairs])
        total, tokens = total + scores.double().sum(dim=1).cpu(), tokens + scores.shape[1]
    return total / max(1, tokens)


def angular_distances(text: HeldOutText) -> Tensor:
    """[L + 1, L + 1] mean over the texts' last tokens of arccos(cos(h_l, h_m)) / pi."""
    total, texts = torch.zeros(1, dtype=torch.float64), 0  # widens to [L + 1, L + 1]
    for states, ends, _ in text.streams():
        last = functional.normalize(torch.stack([state[ends].float() for state in states], dim=1), dim=-1)
        # [texts, L + 1, L + 1]; rounding may take a cosine beyond 1, where arccos is NaN.
        angles = (last @ last.mT).clamp(-1.0, 1.0).arccos() / math.pi
        total, texts = total + angles.double().sum(dim=0).cpu(), texts + len(angles)
    return total / max(1, texts)


def by_angle(text: HeldOutText) -> Tensor:
    """The rule `angular`; its sets are consecutive layers, and need not be nested."""
    distances = angular_distances(text)
    layers = len(distances) - 1
    # Entry l of this diagonal is the distance of h_l and h_{l+count}: the layers l .. l+count-1 between them.
    starts = [int(distances.diagonal(offset=count).argmin()) for count in range(layers + 1)]
    return _table(range(start, start + count) for count, start in enumerate(starts))


def by_loss(loss: Loss, layers: int) -> Tensor:
    """The rule `ppl`; its sets are nested. Measures L (L + 1) / 2 losses."""
    chosen: list[int] = []
    sets = [list(chosen)]
    while len(chosen) < layers:
        rest = [layer for layer in range(layers) if layer not in chosen]
        chosen.append(min(rest, key=lambda layer: loss(frozenset([*chosen, layer]))))
        sets.append(list(chosen))
    return _table(sets)


def by_search(loss: Loss, layers: int, budget: int) -> Tensor:
    """The rule `search`. Measures L (L + 1) / 2 losses for `ppl`, and at most `budget` for each number of layers."""
    start, sets = by_loss(loss, layers), []
    for count in range(layers + 1):
        if math.comb(layers, count) <= budget:
            candidates = [frozenset(chosen) for chosen in combinations(range(layers), count)]
            # With none or all layers left out there is one set, which needs no loss.
            sets.append(min(candidates, key=loss) if len(candidates) > 1 else candidates[0])
        else:
            sets.append(_exchanged(loss, frozenset(start[count].nonzero()[:, 0].tolist()), layers, budget))
    return _table(sets)


def _exchanged(loss: Loss, chosen: frozenset[int], layers: int, budget: int) -> frozenset[int]:
    """The set reached by exchanging one layer at a time: always the first exchange that helps, lower layers first."""
    lowest, spent = loss(chosen), 1
    while True:
        for out, back in product(sorted(set(range(layers)) - chosen), sorted(chosen)):
            if spent == budget:
                return chosen
            other = chosen - {back} | {out}
            found, spent = loss(other), spent + 1
            if found < lowest:
                # Begin again from the new set: its exchanges are others.
                chosen, lowest = other, found
                break
        else:
            return chosen


def _table(sets: Iterable[Sequence[int] | frozenset[int] | range]) -> Tensor:
    """Boolean [L + 1, L] whose row n marks the layers of the n-th set, of n layers."""
    known = [list(one) for one in sets]
    table = torch.zeros(len(known), len(known) - 1, dtype=torch.bool)
    for row, chosen in zip(table, known, strict=True):
        row[chosen] = True
    return table
