r"""CALM: a token exits the stack at the first layer that is confident in its prediction.

Idea: every layer is trained to predict through the shared final norm and head. During generation, a token exits at the
first layer whose confidence reaches a threshold; its state is passed on to the layers above, which project their own
K,V from it.

Paper: "Confident Adaptive Language Modeling", https://arxiv.org/abs/2207.07061.
Equations: loss $\sum_i w_i \mathrm{CE}_i / \sum_i w_i$ with $w_i = i$ (section 3.2). Confidence is, for `softmax`,
top-1 minus top-2 probability; for `state`, the cosine between neighbouring layers' states, never at the first exit; for
`classifier`, the sigmoid of one linear map of the state, shared by all exits and trained afterwards with the rest
frozen to tell whether the layer's prediction is the last layer's, with each layer's cross entropy balanced between the
two cases (section 3.3); for `convergence`, TIDE's measure (below). The threshold for generated token
$t = 0, 1, \ldots$ is $0.9 \lambda + 0.1 \exp(-\tau t / N)$ with temperature $\tau$, clipped to $[0, 1]$ (section 3.3,
`decay=paper`; the released code's form is `decay=t5x`). A probe costs, for these four measures in order: a run of the
head, 3 H, H, and 128 (H + 1) multiply-accumulates.

`confidence=convergence` is how TIDE (arXiv 2603.21365) tells that a state has stopped changing: one router per layer,
$\sigma(u \, \mathrm{silu}(D \, n(h_l)))$ with $D$ of 128 rows, no biases, and $n$ the final norm, is trained afterwards
with the rest frozen, by plain cross entropy on $\cos(h_l, h_L) > 0.98$. In TIDE's released code every layer runs for
every token, so nothing is saved; here a token that exits skips the layers above. TIDE's code probes every fourth layer
(`exit_interval=4`) at a threshold of 0.85, takes $h_L$ after the final norm, trains its routers without $n$ but runs
them with it, and lets the rows of a batch exit together; here both states are residual streams, and each token exits on
its own.

Deviations: decoder-only. Unless `exit_prompt` is set, prompts run at full depth except for their last position, which
generates the first answer token; log-likelihoods are scored by teacher-forced exit, where each answer token exits on
its own confidence. Each token of a batch exits on its own. The logits of the probe at which a token exits are its final
logits. `decay` is off by default, so that a threshold means the same at every position; `min_exit` spares the first
layers, whose heads are overconfident. Tokens that may exit are probed at every dial value; at a value at which none
exits, the saving is therefore negative. The paper's own calibration of the threshold (Learn then Test, section 4) is
left out, because boards compare methods at equal savings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from adaptive_bench.method import (
    EXECUTE_ALL,
    Backbone,
    Decision,
    DialSpec,
    EarlyExit,
    ForwardCall,
    MethodConfig,
    MethodSpec,
    SearchRange,
    Semantics,
    SiteView,
    UsageError,
    initialised_linear,
    leaving_tokens,
)

NEVER = 1.01  # no confidence exceeds 1
CLASSIFIER_STD = 0.01
ROUTER_WIDTH = 128  # TIDE's released code
TRAINED_AFTERWARDS = ("classifier", "convergence")


class CALMConfig(MethodConfig):
    """Parameters of CALM.

    The search space has only inference parameters, so that all trials share one training. It leaves out the classifier
    and the routers, because they need a second training.
    """

    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "confidence": SearchRange.parse("choice:softmax|state", source="paper's measures without a second training"),
        "exit_interval": SearchRange.parse(
            "int:1:8", source="option of the released code; the range is not from the paper: few probes pay"
        ),
        "min_exit": SearchRange.parse(
            "int:1:8", source="option of the released code (FREE's scripts: 4 of 24 layers); the range is not from them"
        ),
    }
    confidence: Literal["softmax", "state", "classifier", "convergence"] = Field(
        "softmax", description="confidence measure; `convergence` is TIDE's"
    )
    converged_at: float = Field(
        0.98, gt=-1, lt=1, description="a state whose cosine with the last layer's exceeds this has converged (TIDE)"
    )
    min_exit: int = Field(1, ge=1, examples=[2], description="layers that always run")
    exit_interval: int = Field(1, ge=1, examples=[2], description="probe after every n-th layer only")
    exit_prompt: bool = Field(False, description="prompt tokens may exit as well")
    decay: Literal["none", "paper", "t5x"] = Field("none", description="how the threshold falls along the answer")
    temperature: float = Field(4.0, gt=0, description="temperature of the decay (paper and released code)")
    decay_steps: int = Field(128, ge=1, description="N of the decay, in generated tokens")

    def exits(self, layers: int) -> range:
        """The layers before which a token may exit."""
        # At the first exit the cosine has no earlier state to compare with.
        first = self.min_exit + (self.exit_interval if self.confidence == "state" else 0)
        return range(first, layers, self.exit_interval)

    def on_model(self, layers: int) -> dict[str, Any]:
        unread = {"min_exit", "exit_interval"} | ({"temperature", "decay_steps"} if self.decay == "none" else set())
        unread |= set() if self.confidence == "convergence" else {"converged_at"}
        read = {name: value for name, value in super().on_model(layers).items() if name not in unread}
        return read | {"exits": list(self.exits(layers))}


class CALM(EarlyExit):
    """Confident early exit; the dial is the threshold lambda, above 1 no token exits."""

    supports_data_parallel = True
    Config: ClassVar[type[MethodConfig]] = CALMConfig
    solves_dial = True
    config: CALMConfig

    def __init__(self, config: CALMConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__(config, backbone, semantics, seed)
        self.exits = config.exits(backbone.num_layers)
        self.first_exit = self.exits.start
        if not self.exits:
            raise UsageError(
                f"CALM needs an exit below the last of {backbone.num_layers} layers, but with confidence="
                f"{config.confidence}, min_exit={config.min_exit}, exit_interval={config.exit_interval} the first one "
                f"comes after layer {self.first_exit}. Lower min_exit or exit_interval."
            )
        self.classifier = None
        if config.confidence == "classifier":
            self.classifier = initialised_linear(backbone.hidden_size, 1, std=CLASSIFIER_STD, bias=0.0)
        # Every layer below the last has a router, so that one training serves every min_exit and exit_interval.
        routed = backbone.num_layers - 1 if config.confidence == "convergence" else 0
        self.routers = nn.ModuleList(_router(backbone.hidden_size) for _ in range(routed))

    @property
    def freezes_backbone(self) -> bool:
        """True for the classifier and the routers, which are trained on a model that can already exit."""
        return self.config.confidence in TRAINED_AFTERWARDS

    @property
    def dial(self) -> DialSpec:
        """Confidence threshold; above 1 no token exits."""
        return DialSpec("threshold", -1.0 if self.config.confidence == "state" else 0.0, NEVER, NEVER)

    def decide(self, view: SiteView) -> Decision:
        """Tokens that have not exited yet execute the layer."""
        if view.call.training:
            return EXECUTE_ALL
        call, layer = view.call, view.site.layer
        # Who has exited stays out: the mask [B, S] is handed from layer to layer within a call.
        alive = call.scratch.get("alive", call.valid)
        if layer in self.exits:
            may_exit = alive if self.config.exit_prompt else alive & call.writing
            alive = alive & ~self._confident(view, may_exit)
        call.scratch["alive"] = alive
        # The `state` measure compares this layer's input with the next one's.
        call.scratch["previous"] = view.hidden
        return Decision(keep=alive)

    def _confident(self, view: SiteView, may_exit: Tensor) -> Tensor:
        """Mask [B, S] of the tokens that exit before this layer."""
        # `leaving_tokens` measures candidates alone, so thresholds are looked up by their flat indices.
        previous = view.call.scratch["previous"] if self.config.confidence == "state" else None
        threshold = self.threshold(view.call).flatten()
        return leaving_tokens(
            view,
            may_exit,
            previous,
            lambda sureness, tokens: sureness >= threshold[tokens],
            self.routers[view.site.layer - 1] if self.routers else self.classifier,
            final_norm=bool(self.routers),
        )

    def threshold(self, call: ForwardCall) -> Tensor:
        """Threshold [B, S] at each token's position in the answer."""
        if self.config.decay == "none" or self.value > 1.0:  # no decay: above 1 no token is to exit at any position
            return torch.full(call.valid.shape, self.value, device=call.valid.device)
        place = call.continuation_step.clamp(min=0) / self.config.decay_steps  # the last prompt token has t = 0
        return decayed(self.value, place, self.config.temperature, self.config.decay)

    def main_loss_weight(self, call: ForwardCall) -> float:
        """w_L / sum w, or 0 while the classifier or the routers are trained."""
        return 0.0 if self.freezes_backbone else layer_weights(self.backbone_size[0])[-1]

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Weighted cross entropy of all layers below the last, or the loss of the classifier or the routers there."""
        assert call.layer_states is not None
        if self.routers:
            return {"routers": (1.0, self._convergence_loss(call, call.layer_states))}
        if self.classifier is not None:
            return {"classifier": (1.0, self._classifier_loss(self.classifier, call, call.layer_states))}
        weights = layer_weights(self.backbone_size[0])[:-1]
        # The last layer's share is the main loss, see `main_loss_weight`.
        return {"layers": (1.0, call.cross_entropies(call.layer_states[: len(weights)], weights))} if weights else {}

    def _classifier_loss(self, classifier: nn.Linear, call: ForwardCall, states: list[Tensor]) -> Tensor:
        """The classifier's loss at tokens that write the answer, averaged over the layers below the last."""
        # One [N, H] a layer, of the tokens that write the answer; the last layer's prediction is the label.
        written = [call.of_written(state) for state in states]
        with torch.no_grad():
            predicted = [call.likeliest(state) for state in written]
        layers = [
            balanced_cross_entropy(
                call.whole(classifier(state.float())[:, 0]), call.whole((guess == predicted[-1]).float())
            )
            for state, guess in zip(written[:-1], predicted[:-1], strict=True)
        ]
        return torch.stack(layers).mean()

    def _convergence_loss(self, call: ForwardCall, states: list[Tensor]) -> Tensor:
        """The routers' loss at tokens that write the answer, averaged over the layers below the last."""
        *written, last = [call.of_written(state) for state in states]
        layers = []
        for router, state in zip(self.routers, written, strict=True):
            labels = converged(state, last, self.config.converged_at)
            logits = router(call.backbone.final_norm(state).float())[:, 0]
            layers.append(functional.binary_cross_entropy_with_logits(call.whole(logits), call.whole(labels)))
        return torch.stack(layers).mean()

    @classmethod
    def starts_from(cls, spec: MethodSpec) -> MethodSpec | None:
        """The classifier and the routers start from plain CALM, a model that can exit at every layer."""
        config: CALMConfig = cls.parse_config(spec)
        return MethodSpec(spec.name) if config.confidence in TRAINED_AFTERWARDS else None

    @classmethod
    def training_spec(cls, config: CALMConfig, spec: MethodSpec) -> MethodSpec:
        """All parameters matter at inference only, except those that define a trained confidence measure."""
        read = {"classifier": ("confidence",), "convergence": ("confidence", "converged_at")}
        names = read.get(config.confidence, ())
        return MethodSpec(spec.name, tuple(pair for pair in spec.params if pair[0] in names))


def _router(hidden: int) -> nn.Sequential:
    """TIDE's map from a normed state to one logit."""
    return nn.Sequential(nn.Linear(hidden, ROUTER_WIDTH, bias=False), nn.SiLU(), nn.Linear(ROUTER_WIDTH, 1, bias=False))


def converged(states: Tensor, last: Tensor, cosine: float) -> Tensor:
    """[N] 1 where the cosine of a state [N, H] with the last layer's exceeds `cosine`, else 0."""
    return (functional.cosine_similarity(states.float(), last.float(), dim=-1) > cosine).float()


def layer_weights(layers: int) -> list[float]:
    """w_i / sum w with w_i = i, for i = 1 .. L."""
    total = layers * (layers + 1) / 2
    return [number / total for number in range(1, layers + 1)]


def balanced_cross_entropy(logits: Tensor, agrees: Tensor) -> Tensor:
    """Mean binary cross entropy of logits [N] against labels [N] of 0 and 1, each weighted by the other label's share.

    Both labels then count alike, and a layer that always or never agrees contributes nothing (released code).
    """
    share = agrees.mean()
    weights = torch.where(agrees > 0, 1.0 - share, share)
    return functional.binary_cross_entropy_with_logits(logits.float(), agrees, weight=weights)


def decayed(threshold: float, place: Tensor, temperature: float, form: Literal["paper", "t5x"]) -> Tensor:
    """The falling threshold at places t / N; `paper` adds 0.1 exp(.), `t5x` 0.1 lambda exp(.)."""
    amount = 1.0 if form == "paper" else threshold
    return (0.9 * threshold + 0.1 * amount * torch.exp(-temperature * place)).clamp(0.0, 1.0)
