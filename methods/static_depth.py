r"""Static depth: every token skips the same layers. The control for everything that claims to adapt.

Idea: no decision at all. If a method cannot beat leaving out layers, its routing is worth nothing. Which layers is up
to a rule: by default they are evenly spaced (`rule=every`); the other rules score layers on held-out training text with
the model whose layers they leave out, and never on test data. `layers=1+3` names them instead, in the order they go.
Source: the static controls of methods such as Unified Layer Skipping for `every`; ShortGPT (arXiv 2403.03853) for `bi`;
Gromov et al. (arXiv 2403.17887) for `angular`; `ppl` after Shortened LLaMA (arXiv 2402.02834).
Equations: `every`: skipped layer n of N is 1 + floor((n + 1/2) (L - 2) / N), all counted from 0; the last and then the
first layer go only when no other is left. With $h_l$ the residual stream before layer l, and $h_L$ before the final
norm: `bi` leaves out the layers with the lowest $1 - \mathrm{E} \cos(h_l, h_{l+1})$ over all tokens; `angular` the run
of N layers with the smallest mean of $\arccos(\cos(h_l, h_{l+N})) / \pi$ over the last tokens of texts; `ppl` one layer
after another, always the one whose removal gives the lowest loss of continuations; `search` tries all sets of N layers
if there are no more than `search_budget`, else it starts from the set of `ppl` and exchanges one layer at a time while
that lowers the loss, with as many losses measured for each N.

With `compensate=scale`, in place of layer l, tokens get what multiplies their state by $s_l$, with the least-squares
$s_l = \sum \langle h_l, h_{l+1} \rangle / \sum \lVert h_l \rVert^2$ over the tokens of held-out text on the model that
runs every layer, fitted after training: the skip with a factor of DASH (arXiv 2505.17420), at H multiply-accumulates
per layer and token.

With `trained`, the layers are left out during training as well: more and more of them, up to the run's target saving; a
run with several targets trains it for each number of layers up to the first that saves the largest of them. A rule then
chooses once, on the model before that training.
Deviations: nothing is stored for a layer that never runs. `bi` is measured on the stream alone (the released code
takes the last state after the final norm); `ppl` deletes greedily, where Shortened LLaMA measures each layer once in
the whole model, and does not spare the layers at the ends. Losses are measured on at most 64 texts. Nothing is healed
with adapters: `trained` trains as every method does.
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


class StaticDepthConfig(MethodConfig):
    """Parameters of static depth."""

    may_agree: ClassVar[frozenset[str]] = frozenset({"rule", "search_budget"})
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "rule": SearchRange.parse("choice:every|bi|angular|ppl|search", source="the rules of the papers, and a search"),
        "compensate": SearchRange.parse("choice:none|scale", source="DASH's factor, and without it"),
    }
    trained: bool = Field(False, description="leave layers out in training as well, on the schedule of all methods")
    rule: Literal["every", "bi", "angular", "ppl", "search"] = Field(
        "every", description="which layers: evenly spaced ones, or those a score on held-out text can best do without"
    )
    layers: str | None = Field(
        None,
        pattern=r"^\d+(\+\d+)*$",
        description="leave out these layers, counted from 0 and in this order, instead of those of a rule: 1+3",
    )
    search_budget: int = Field(
        32, ge=1, description="losses that `search` measures for each number of layers, beyond those of `ppl`"
    )
    compensate: Compensation = Field(
        "none", description="what tokens get instead of a layer: nothing, or what makes their state s times as large"
    )

    @model_validator(mode="after")
    def _named_or_ruled(self) -> Self:
        if self.layers and self.rule != "every":
            raise ValueError(f"layers are named or picked by a rule, got layers={self.layers} and rule={self.rule}")
        return self

    @property
    def named(self) -> list[int]:
        """The layers that are named."""
        return [int(layer) for layer in self.layers.split("+")] if self.layers else []

    def on_model(self, layers: int) -> dict[str, Any]:
        """See `MethodConfig`."""
        found = super().on_model(layers)
        return found if self.rule == "search" else found | {"search_budget": None}


class StaticDepth(Method):
    """Leaves out a number of layers, the dial."""

    supports_data_parallel = True
    adapts = False
    skips_whole_layers = True
    Config: ClassVar[type[MethodConfig]] = StaticDepthConfig
    spares = False
    unit = "layer"
    config: StaticDepthConfig
    chosen: torch.Tensor

    def __init__(self, config: StaticDepthConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        layers = backbone.num_layers
        if len(set(config.named) & set(range(layers))) < len(config.named):
            raise UsageError(
                f"The layers that static depth leaves out are different ones from 0 to {layers - 1} on this model, got "
                f"layers={config.layers}. Name each once."
            )
        self._tried: frozenset[int] | None = None  # a set whose loss is being measured
        self._sets: list[set[int]] | None = None  # `chosen`, read from the device once
        if self.prepares_training:  # row n: the n layers to leave out; part of what is trained
            self.register_buffer("chosen", torch.zeros(layers + 1, layers, dtype=torch.bool))
            self.register_load_state_dict_post_hook(_read_again)
        picks = config.rule != "every" and not config.trained
        if names := [*(["chosen"] if picks else []), *(["scales"] if config.compensate == "scale" else [])]:
            self.fitted = Fitted(*names)

    @property
    def dial(self) -> DialSpec:
        """Layers left out."""
        return DialSpec("skipped_layers", 0, len(self.config.named) or self.backbone_size[0], 0)

    @property
    def eligible_sites(self) -> frozenset[Site]:
        """Those of the layers that are named, else all."""
        return every_branch(self.config.named or range(self.backbone_size[0]))

    @property
    def max_saved_tokens(self) -> float:
        """All layers that may be left out."""
        return self.dial.maximum / self.backbone_size[0]

    @property
    def kv_policy(self) -> KVPolicy:
        """A layer that never runs has no keys and values; in training it takes nobody else's away."""
        return "recompute" if self.training else "evict"

    def dial_for(self, saved_tokens: float) -> float:
        """The nearest number of layers."""
        return min(round(saved_tokens * self.backbone_size[0]), self.dial.maximum)

    def skipped_layers(self) -> set[int]:
        """The layers left out at the current dial, or at the current step of training."""
        if self._tried is not None:
            return set(self._tried)
        layers = self.backbone_size[0]
        skipped = round(self.annealed(0, self.dial_for(self.target)) if self.training else self.value)
        if skipped and self.config.rule != "every":
            return self._chosen(skipped)
        if self.config.named:
            return set(self.config.named[:skipped])
        inner = max(0, layers - 2)
        spread = min(skipped, inner)
        chosen = {1 + int((number + 0.5) * inner / spread) for number in range(spread)}
        return chosen | set([layers - 1, 0][: skipped - spread])

    def _chosen(self, skipped: int) -> set[int]:
        """The layers that the rule picked.

        Raises:
            UsageError: It has not been asked yet.
        """
        if not self.prepares_training:
            assert self.fitted is not None
            return set(self.fitted["chosen"][skipped].nonzero()[:, 0].tolist())
        if self._sets is None:
            self._sets = [set(row.nonzero()[:, 0].tolist()) for row in self.chosen.cpu()]
        if not self._sets[-1]:
            raise UsageError(
                f"rule={self.config.rule} picks layers before training, got none picked. Call "
                "model.prepare_training(batches) with held-out training text first."
            )
        return self._sets[skipped]

    @property
    def prepares_training(self) -> bool:
        """A rule chooses before the training that heals."""
        return self.config.trained and self.config.rule != "every"

    def prepare_training(self, text: HeldOutText) -> None:
        """Ask the rule."""
        self.chosen.copy_(self._asked(text))
        self._sets = None

    def fit(self, text: HeldOutText) -> None:
        """Ask the rule, where no training did, and fit what is given instead of layers."""
        assert self.fitted is not None
        measures = {"chosen": self._asked, "scales": site_scales}
        self.fitted.set(**{name: measures[name](text) for name in self.fitted.names})

    def _asked(self, text: HeldOutText) -> torch.Tensor:
        """[L + 1, L] what the rule leaves out."""
        assert self.config.rule != "every"

        def loss(skipped: frozenset[int]) -> float:
            self._tried = skipped
            try:
                return text.loss()
            finally:
                self._tried = None

        return layers_to_leave_out(self.config.rule, text, loss, self.backbone_size[0], self.config.search_budget)

    def decide(self, view: SiteView) -> Decision:
        """As known before; what is given instead is of the state there."""
        decision = super().decide(view)
        if self.config.compensate == "none" or self._tried is not None:
            return decision
        assert self.fitted is not None
        return compensated(view, decision, self.fitted)

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision]:
        """Nobody or everybody."""
        if self.training and not self.config.trained:
            return [EXECUTE_ALL] * self.backbone_size[0]
        skipped, nobody = self.skipped_layers(), Decision.skip_all(call.valid)
        return [nobody if layer in skipped else EXECUTE_ALL for layer in range(self.backbone_size[0])]

    @classmethod
    def takes_target(cls, config: MethodConfig) -> bool:
        """As many layers as come closest to it."""
        assert isinstance(config, StaticDepthConfig)
        return config.trained

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """Untrained: the dense model. Trained: what is given instead of layers matters at inference only."""
        assert isinstance(config, StaticDepthConfig)
        params = tuple(pair for pair in spec.params if pair[0] != "compensate")
        return MethodSpec(spec.name, params) if config.trained else MethodSpec("dense")


def _read_again(method: Method, _: Any) -> None:
    """What was chosen came from a file."""
    assert isinstance(method, StaticDepth)
    method._sets = None
