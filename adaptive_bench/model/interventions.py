"""Makes decisions in place of a method: prescribed ones (static sets), shuffled ones, and the cost of each branch.

Comparing a method with its shuffled decisions shows what its choice of tokens is worth (see `engine.shuffling`).

`site_costs` measures what every branch of a model is worth before any training, and so which branches should be spared:
if a third of all tokens skips the MLP of layer 0, the predictions of SmolLM2-135M change a hundred times as much as if
they skip the median branch. A random 36 % of the tokens of held-out training text (fixed seed) do not get the output of
one branch; the first token of a text always does, and all keys and values are kept. The cost is the mean KL divergence
from the unchanged model's predictions. A branch is spared if its cost exceeds ten times the median. The first token of
every text is kept if its residual stream, anywhere below the last layer, is more than ten times as long as the median
token's: other tokens attend to such a token whatever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from adaptive_bench.backbone import Backbone, Site
from adaptive_bench.engine.layer_loop import run_layers
from adaptive_bench.engine.shuffling import DecisionBank, DecisionCollector
from adaptive_bench.errors import UsageError
from adaptive_bench.method import (
    EXECUTE_ALL,
    Decision,
    DialSpec,
    ForwardCall,
    KVPolicy,
    Method,
    MethodConfig,
    MethodSpec,
    SiteView,
    every_branch,
    why_not_shuffled,
)
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.calibration import TEXT_PARTS, checked_text, measuring
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.progress import RunningTask


class Prescribed(Method):
    """Decides by a rule set from outside. It is not registered, since it is no real method."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(MethodConfig(), backbone, "bench", 0)
        # Maps a view to the tokens [B, S] that execute the site, or `None` for all.
        self.rule: Callable[[SiteView], Tensor | None] = lambda view: None

    @property
    def dial(self) -> DialSpec:
        """A placeholder: there is no dial."""
        return DialSpec("none", 0.0, 0.0, 0.0)

    def decide(self, view: SiteView) -> Decision:
        """The decision known ahead, or the rule's."""
        if view.call.ahead is not None:
            return super().decide(view)
        keep = self.rule(view)
        return EXECUTE_ALL if keep is None else Decision(keep=keep)


class StaticSet(Prescribed):
    """Skips the same layers for every token; skipped layers store nothing, as in `static_depth`."""

    unit = "layer"
    kv_policy: KVPolicy = "evict"

    def __init__(self, backbone: Backbone, skipped: Collection[int]) -> None:
        super().__init__(backbone)
        self.skipped = frozenset(skipped)

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision]:
        """Each layer is executed by no token or by all tokens."""
        nobody = Decision(keep=torch.zeros_like(call.valid))
        return [nobody if layer in self.skipped else EXECUTE_ALL for layer in range(self.backbone_size[0])]


def static_model(backbone_model: PreTrainedModel, skipped: Collection[int]) -> AdaptiveModel:
    """A model that never runs some layers, in `eval()` mode."""
    method = StaticSet(Backbone(backbone_model), skipped)
    name = "without_layers_" + "_".join(map(str, sorted(skipped))) if skipped else "all_layers"
    return AdaptiveModel(backbone_model, method, MethodSpec(name)).eval()


@torch.no_grad()
def collect_decisions(model: ForwardModel, batches: Sequence[dict[str, Tensor]]) -> DecisionBank:
    """Collect the decisions of every token of a text at the current dial."""
    if why := why_not_shuffled(model.spec):
        raise UsageError(f"Tokens can exchange decisions only if each is decided separately, but {why}.")
    collector = DecisionCollector()
    with measuring(model), standing_between(model, collector):
        for batch in batches:
            model(**batch, logits_to_keep=1)
    return collector.bank(model.method.seed, per_prompt=model.method.once_per_prompt)


@contextmanager
def standing_between(model: ForwardModel, between: DecisionBank | DecisionCollector | None) -> Iterator[None]:
    """Put a bank or collector between method and executors inside the block.

    A bank must have been collected with the same weights and dial value.
    """
    before = model.between
    model.between = between.to(model.backbone_model.device) if isinstance(between, DecisionBank) else between
    try:
        yield
    finally:
        model.between = before


SHARE = 0.36  # share of skipping tokens, as with a method that saves about 15 % net although its gates cost a sixth
_AT_ONCE = 256  # tokens that go through the head together
FACTOR = 10.0  # times the median: limit for a site's cost, and for the length of a first token's residual stream


@dataclass(frozen=True)
class SiteCosts:
    """The costs of sites, measured on a text."""

    # Mean KL divergence in nats from the model's predictions if a share of the tokens skips only this site.
    costs: Mapping[Site, float]
    # The length of a first token's residual stream relative to the median token's: the largest ratio below the last
    # layer, averaged over texts.
    first_token: float
    tokens: int  # of the text

    @property
    def spared(self) -> frozenset[Site]:
        """The sites whose cost exceeds ten times the median; none if the median is not above 0."""
        middle = self.median
        # A median of 0 says nothing about size: any cost would exceed ten times it.
        return frozenset(site for site, cost in self.costs.items() if 0 < FACTOR * middle < cost)

    @property
    def median(self) -> float:
        """The median of the sites' costs."""
        return median(self.costs.values())

    @property
    def keep_first(self) -> bool:
        """Whether the first token of a text should be kept, because its residual stream is extremely long."""
        return self.first_token > FACTOR

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        costs = [[*site, cost] for site, cost in sorted(self.costs.items())]
        return {"costs": costs, "first_token": self.first_token, "tokens": self.tokens}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> SiteCosts:
        """Restore the result of `to_json`."""
        costs = {Site(layer, branch): float(cost) for layer, branch, cost in said["costs"]}
        return cls(costs, float(said["first_token"]), int(said["tokens"]))

    def described(self) -> str:
        """In words: `56 of 60 sites; spared: MLP of layer 0 (88x the median), ..., first token (157x as long)`."""
        names = {"attention": "attention", "mlp": "MLP"}
        ordered = sorted(self.spared, key=lambda site: -self.costs[site])
        parts = [
            f"{names[site.branch]} of layer {site.layer} ({self.costs[site] / self.median:.0f}x the median)"
            for site in ordered
        ]
        parts += [f"first token ({self.first_token:.0f}x as long)"] if self.keep_first else []
        total = len(self.costs)
        return f"{total - len(ordered)} of {total} sites" + (f"; spared: {', '.join(parts)}" if parts else "")


@torch.no_grad()
def site_costs(
    backbone_model: PreTrainedModel,
    batches: Sequence[Mapping[str, Tensor]],
    *,
    seed: int = 0,
    task: RunningTask | None = None,
) -> SiteCosts:
    """Measure the costs of a model's sites, with one pass per site through its layer and those above.

    Args:
        batches: Held-out training text: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S]. A few hundred
            tokens are enough, since the costs of interest are ten times the median.
        seed: Selects the skipping tokens, the same at every site.
    """
    text = checked_text(batches, least=1)
    model = AdaptiveModel(backbone_model, Prescribed(Backbone(backbone_model)), MethodSpec("prescribed")).eval()
    model.executor = "masked"
    parts = [_Part(model, batch, seed) for batch in text]
    tokens = sum(int(part.valid.sum()) for part in parts)
    costs = {}
    for site in sorted(every_branch(range(model.backbone.num_layers)), key=lambda one: one.number):
        costs[site] = sum(part.divergence_without(site) for part in parts) / tokens
        if task is not None:
            task.advance()
    ratios = torch.cat([part.first_token for part in parts])
    return SiteCosts(costs, float(ratios.mean()), tokens)


class _Part:
    """One batch of the text, with the residual stream before every layer, so that a pass can begin at any layer."""

    def __init__(self, model: Any, batch: Mapping[str, Tensor], seed: int) -> None:
        self._model, self._batch = model, batch
        self.valid = batch["attention_mask"].bool()
        self._first = self.valid & (self.valid.cumsum(dim=1) == 1)
        # Drawn on the CPU, so that the same tokens skip on every device.
        draw = torch.rand(self.valid.shape, generator=torch.Generator().manual_seed(seed)).to(self.valid.device)
        self._keep = (draw >= SHARE) | self._first
        self._states: list[Tensor] = []
        # This pass also fills `_states`, where the passes of single sites begin.
        self._full = torch.cat([logits.log_softmax(dim=-1) for logits in self._logits(None)])
        lengths = torch.stack([state.float().norm(dim=-1) for state in self._states])  # [L, B, S]
        # The median over real tokens: padding is NaN here, and left out.
        middle = lengths.masked_fill(~self.valid, torch.nan).nanmedian(dim=-1, keepdim=True).values
        self.first_token = (lengths / middle).masked_fill(~self._first, 0.0).amax(dim=(0, 2))  # [B]

    def divergence_without(self, site: Site) -> float:
        """Sum over tokens of KL(unchanged model || model in which some tokens skip the site)."""
        pairs = zip(self._logits(site), self._full.split(_AT_ONCE), strict=True)
        kl = (functional.kl_div(one.log_softmax(dim=-1), full, reduction="sum", log_target=True) for one, full in pairs)
        return sum(map(float, kl))

    def _logits(self, site: Site | None) -> Iterator[Tensor]:
        """Logits [n, V] of the real tokens, in chunks, if some tokens skip the site (`None`: no token skips)."""
        model = self._model
        call = model._begin_call(*(self._batch[name] for name in TEXT_PARTS))

        def rule(view: SiteView) -> Tensor | None:
            # Before attention is before the layer.
            if site is None and view.site.branch == "attention":
                self._states.append(view.hidden)
            return self._keep if view.site == site else None

        model.method.rule = rule
        layers = range(0 if site is None else site.layer, model.backbone.num_layers)
        hidden = run_layers(model.method, call, call.embed() if site is None else self._states[site.layer], layers)
        call.end()
        for states in hidden[self.valid].split(_AT_ONCE):
            yield model.backbone.head(model.backbone.final_norm(states)).float()
