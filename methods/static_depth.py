r"""Static depth: every token skips the same layers. The control for everything that claims to adapt.

Idea: no decision at all. If a method cannot beat leaving out layers, its routing is worth nothing. A rule picks the
layers: by default they are evenly spaced (`rule=every`); the other rules score layers on held-out training text, never
on test data, with the model whose layers they leave out. `layers=1+3` names the layers instead, in the order in which
they are left out. With `unit=branch` single branches are left out instead of layers, by the same rules;
`branches=1a+3m` names them (attention of layer 1, then MLP of layer 3).
Source: the static controls of methods such as Unified Layer Skipping for `every`; ShortGPT
(https://arxiv.org/abs/2403.03853) for `bi`; Gromov et al. (https://arxiv.org/abs/2403.17887) for `angular`; `ppl` after
Shortened LLaMA (https://arxiv.org/abs/2402.02834); `bi` of branches after the Joint Layer Drop of He et al.
(https://arxiv.org/abs/2406.15786).
Equations: `every`: skipped layer n of N is 1 + floor((n + 1/2) (L - 2) / N), all counted from 0; the last and then the
first layer are left out only when no other layer remains. With $h_l$ the residual stream before layer l, and $h_L$
before the final norm: `bi` leaves out the layers with the lowest $1 - \mathrm{E} \cos(h_l, h_{l+1})$ over all tokens;
`angular` leaves out the run of N layers with the smallest mean of $\arccos(\cos(h_l, h_{l+N})) / \pi$ over the last
tokens of texts; `ppl` removes one layer after another, always the one whose removal gives the lowest loss of
continuations; `search` tries all sets of N layers if there are at most `search_budget` of them, else it starts from the
set of `ppl` and exchanges one layer at a time while that lowers the loss, measuring at most `search_budget` losses for
each N.

With `unit=branch` the rules apply to the 2 L branches in the order in which they run: $h_l$ is the stream before branch
l, and a run of N branches may begin and end within a layer.

With `compensate=scale`, the state of a token that skips layer l is multiplied by $s_l$, the least-squares
$s_l = \sum \langle h_l, h_{l+1} \rangle / \sum \lVert h_l \rVert^2$ over the tokens of held-out text, fitted after
training on the model that runs every layer. This is the scaled skip of DASH (arXiv 2505.17420), at H
multiply-accumulates per layer and token.

With `trained`, the layers are left out during training as well: more and more of them, the last ones first, up to the
training's target saving. A rule then chooses once, on the model before that training.
Deviations: no K,V are stored for a layer that never runs. `bi` is measured on the stream alone (the released code
takes the last state after the final norm); `ppl` deletes greedily and does not spare the layers at the ends, whereas
Shortened LLaMA measures each layer once in the whole model. Losses are measured on at most 64 texts. Nothing is healed
with adapters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator

from adaptive_bench.method import (
    EXECUTE_ALL,
    Backbone,
    Compensation,
    Decision,
    DialSpec,
    Fitted,
    ForwardCall,
    HeldOutText,
    KVPolicy,
    Method,
    MethodConfig,
    MethodSpec,
    SearchRange,
    Semantics,
    Site,
    SiteView,
    UsageError,
    compensated,
    every_branch,
    layers_to_leave_out,
    site_scales,
)

VERSION = 2  # in 1 layers were chosen anew for each number of them that a training went through


class StaticDepthConfig(MethodConfig):
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "rule": SearchRange.parse("choice:every|bi|angular|ppl|search", source="the rules of the papers, and a search"),
        "compensate": SearchRange.parse("choice:none|scale", source="DASH's factor, and without it"),
    }
    trained: bool = Field(False, description="leave layers out in training as well, on the schedule all methods share")
    rule: Literal["every", "bi", "angular", "ppl", "search"] = Field(
        "every", description="which layers: evenly spaced ones, or those that matter least by a score on held-out text"
    )
    unit: Literal["layer", "branch"] = Field("layer", description="what is left out: layers, or single branches")
    layers: str | None = Field(
        None,
        pattern=r"^\d+(\+\d+)*$",
        description="leave out these layers instead of a rule's, counted from 0 and in this order: 1+3",
    )
    branches: str | None = Field(
        None,
        pattern=r"^\d+[am](\+\d+[am])*$",
        description="leave out these branches instead, attention (a) or MLP (m) of a layer: 1a+3m",
    )
    search_budget: int = Field(
        32, ge=1, description="most losses that `search` measures for each number of layers, besides those of `ppl`"
    )
    compensate: Compensation = Field(
        "none", description="what a token gets for a skipped layer: nothing, or its state times a fitted factor s"
    )

    @model_validator(mode="after")
    def _named_or_ruled(self) -> Self:
        if (self.layers or self.branches) and self.rule != "every":
            raise ValueError(f"layers are named or picked by a rule, got {self.names} and rule={self.rule}")
        if self.layers and self.by_branch:
            raise ValueError(f"unit=branch: branches are named instead of layers (branches=1a+3m), got {self.names}")
        return self

    @property
    def by_branch(self) -> bool:
        """Whether branches are left out instead of layers."""
        return self.unit == "branch" or self.branches is not None

    @property
    def names(self) -> str:
        """The parameters that name layers or branches, as they were given."""
        given = {"layers": self.layers, "branches": self.branches}
        return " and ".join(f"{name}={text}" for name, text in given.items() if text)

    @property
    def named(self) -> list[int]:
        """The layers that `layers` names, or the site numbers that `branches` names."""
        if self.branches:
            return [2 * int(text[:-1]) + (text[-1] == "m") for text in self.branches.split("+")]
        return [int(layer) for layer in self.layers.split("+")] if self.layers else []

    def on_model(self, layers: int) -> dict[str, Any]:
        found = super().on_model(layers) | {"unit": "branch" if self.by_branch else "layer"}
        return found if self.rule == "search" else found | {"search_budget": None}


class StaticDepth(Method):
    """Leaves out layers or branches; the dial is how many."""

    supports_data_parallel = True
    adapts = False
    skips_whole_layers = True
    trains_alike = True
    at_inference = frozenset({"compensate"})
    Config: ClassVar[type[MethodConfig]] = StaticDepthConfig
    spares = False
    unit: ClassVar[Literal["branch", "layer"]] = "layer"
    config: StaticDepthConfig
    chosen: torch.Tensor

    def __init__(self, config: StaticDepthConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        if config.by_branch:
            self.unit = "branch"  # type: ignore[misc]  # set on this instance, not on the class
        if len(set(config.named) & set(range(self.units))) < len(config.named):
            raise UsageError(
                f"On this model static depth leaves out distinct layers from 0 to {backbone.num_layers - 1}, or "
                f"branches of them, got {config.names}. Name each once."
            )
        self._tried: frozenset[int] | None = None  # a set whose loss is being measured
        self._sets: list[set[int]] | None = None  # `chosen`, read from the device once
        if self.prepares_training:  # row n marks the n units to leave out; a buffer, so that checkpoints keep it
            self.register_buffer("chosen", torch.zeros(self.units + 1, self.units, dtype=torch.bool))
            self.register_load_state_dict_post_hook(_read_again)
        picks = config.rule != "every" and not config.trained
        if names := [*(["chosen"] if picks else []), *(["scales"] if config.compensate == "scale" else [])]:
            self.fitted = Fitted(*names)

    @property
    def units(self) -> int:
        """How many layers (or branches) the model has."""
        return self.backbone_size[0] * (2 if self.config.by_branch else 1)

    @property
    def dial(self) -> DialSpec:
        name = "skipped_branches" if self.config.by_branch else "skipped_layers"
        return DialSpec(name, 0, len(self.config.named) or self.units, 0)

    @property
    def eligible_sites(self) -> frozenset[Site]:
        if self.config.branches:
            return frozenset(Site(number // 2, "mlp" if number % 2 else "attention") for number in self.config.named)
        return every_branch(self.config.named or range(self.backbone_size[0]))

    @property
    def kv_policy(self) -> KVPolicy:
        """A layer that is left out stores no K,V; in training `recompute`."""
        return "recompute" if self.training else "evict"

    def dial_for(self, saved_tokens: float) -> float:
        """The number of layers or branches that comes closest to the saving."""
        return min(round(saved_tokens * self.units), self.dial.maximum)

    def skipped_layers(self) -> set[int]:
        """The layers (or numbers of branches) left out at the current dial or, in training, at the current step."""
        if self._tried is not None:
            return set(self._tried)
        if not self.training:
            return set(self._left_out(round(self.value)))
        # A prefix of the final list: a model that has learnt to do without a layer never gets it back.
        final = self._left_out(round(self.dial_for(self.target)))
        return set(final[: round(self.annealed(0, len(final)))])

    def _left_out(self, skipped: int) -> list[int]:
        """The layers (or numbers of branches) to leave out, `skipped` of them, in the order training removes them."""
        if skipped and self.config.rule != "every":
            return sorted(self._chosen(skipped), reverse=True)
        if self.config.named:
            return self.config.named[:skipped]
        spread = min(skipped, max(0, self.units - 2))
        # The middles of `spread` equal parts of what lies between first and last.
        chosen = [1 + int((number + 0.5) * (self.units - 2) / spread) for number in range(spread)]
        return chosen[::-1] + [self.units - 1, 0][: skipped - spread]

    def _chosen(self, skipped: int) -> set[int]:
        """The `skipped` layers (or branches) that the rule picked."""
        if not self.prepares_training:
            assert self.fitted is not None
            return set(self.fitted["chosen"][skipped].nonzero()[:, 0].tolist())
        if self._sets is None:
            self._sets = [set(row.nonzero()[:, 0].tolist()) for row in self.chosen.cpu()]
        if not self._sets[-1]:
            raise UsageError(
                f"rule={self.config.rule} picks layers before training, but has picked none yet. Call "
                "model.prepare_training(batches) with held-out training text first."
            )
        return self._sets[skipped]

    @property
    def prepares_training(self) -> bool:
        """Whether a rule has to choose layers before training."""
        return self.config.trained and self.config.rule != "every"

    def prepare_training(self, text: HeldOutText) -> None:
        """Lets the rule choose the layers that training leaves out."""
        self.chosen.copy_(self._choose_units(text))
        self._sets = None

    def fit(self, text: HeldOutText) -> None:
        """Lets the rule choose layers, unless training fixed them, and fits the factors of `compensate=scale`."""
        assert self.fitted is not None
        measures = {"chosen": self._choose_units, "scales": site_scales}
        self.fitted.set(**{name: measures[name](text) for name in self.fitted.names})

    def _choose_units(self, text: HeldOutText) -> torch.Tensor:
        """[U + 1, U] which of the U layers or branches the rule leaves out; row n marks n of them."""
        assert self.config.rule != "every"

        def loss(skipped: frozenset[int]) -> float:
            self._tried = skipped
            try:
                return text.loss()
            finally:
                self._tried = None

        return layers_to_leave_out(self.config.rule, text, loss, self.units, self.config.search_budget)

    def decide(self, view: SiteView) -> Decision:
        """The decision known ahead, with the compensation that the state at this site gives."""
        decision = super().decide(view)
        if self.config.compensate == "none" or self._tried is not None:
            return decision
        assert self.fitted is not None
        return compensated(view, decision, self.fitted)

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision]:
        """For each layer (or branch), all tokens execute it or none does."""
        if self.training and not self.config.trained:
            return [EXECUTE_ALL] * self.units
        skipped, nobody = self.skipped_layers(), Decision.skip_all(call.valid)
        return [nobody if unit in skipped else EXECUTE_ALL for unit in range(self.units)]

    @classmethod
    def takes_target(cls, config: StaticDepthConfig) -> bool:
        """Whether training leaves out the number of layers or branches that comes closest to the run's target."""
        return config.trained

    @classmethod
    def training_spec(cls, config: StaticDepthConfig, spec: MethodSpec) -> MethodSpec:
        """Without `trained` the dense model's; else all parameters except `compensate` matter."""
        return super().training_spec(config, spec) if config.trained else MethodSpec("dense")


def _read_again(method: Method, _: Any) -> None:
    """Drops the cached sets after `chosen` was loaded from a file."""
    assert isinstance(method, StaticDepth)
    method._sets = None
