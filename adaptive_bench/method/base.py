"""What a method is to the engine: parameters, one dial, and one answer per site."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    model_validator,
)
from torch import Tensor, nn

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone, Site
from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.faults import in_plugin
from adaptive_bench.method.call import ForwardCall
from adaptive_bench.method.decisions import Decision
from adaptive_bench.method.dial import DialSpec, DialTable, SearchRange, annealed
from adaptive_bench.method.fitted import Fitted, HeldOutText
from adaptive_bench.method.site_view import SiteView
from adaptive_bench.method.sparing import Sparing, every_branch
from adaptive_bench.method.thresholds import Thresholds
from adaptive_bench.spec import MethodSpec, Semantics
from adaptive_bench.validation import rule_of

CausalityClass = Literal["C0", "C1", "C2"]
KVPolicy = Literal["recompute", "copy_below", "evict", "defer"]
DEFAULT_TARGET = 0.2  # GateSkip's budget, 1.0 -> 0.8 (section 4.1), where nobody sets another


class MethodConfig(BaseModel):
    """Parameters of a method. A field is a spec parameter: `name[field=value]`. Unknown ones are refused.

    Attributes:
        companions: For a value that a small model can have only together with another one: `{"a=x": "b=y"}`.
        unsound: Values `a=x` kept to show what a paper's letter does, although it breaks a rule of the conformance
            suite: `adaptive-bench check` leaves them out unless they are named.
        search_space: Where `adaptive-bench tune` looks for the parameters that decide its result, by name.
        may_agree: Parameters whose values may come to the same on one model: which few layers a rule picks.
        target_parameter: The one that says where training ends; where it is `None`, the run's target saving does.
        falling: Of each schedule of training whose value falls: the parameter it starts at, and the one it ends at.
    """

    companions: ClassVar[Mapping[str, str]] = {}
    search_space: ClassVar[Mapping[str, SearchRange]] = {}
    unsound: ClassVar[frozenset[str]] = frozenset()
    may_agree: ClassVar[frozenset[str]] = frozenset()
    falling: ClassVar[Mapping[str, str]] = {}
    target_parameter: ClassVar[str | None] = None
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    @model_validator(mode="after")
    def _schedules_fall(self) -> Self:
        for first, last in self.falling.items():
            start, end = getattr(self, first), getattr(self, last)
            if end is not None and start < end:
                raise ValueError(f"{last} is at most {first}, from where training falls to it, got {end} and {start}")
        return self

    def on_model(self, layers: int) -> dict[str, Any]:
        """What the parameters come to on a model of so many layers, as plain values: configs with equal answers are one
        method there.

        A default that stands for another value is given as that value; a parameter that nothing reads is left out.
        """
        return self.model_dump(mode="json")


class Method(Sparing):
    """Base of all methods. A subclass gives `Config`, `dial`, `decide` and what else differs from these defaults.

    Args:
        config: The method's parameters.
        backbone: The model it decides for.
        semantics: `bench` (causal, batch-free) or `paper` (what its authors would run).
        seed: For whatever the method draws at random.

    Attributes:
        unit: `branch` (asked before every attention and MLP) or `layer` (asked once, the answer holds for both).
        value: Current dial value.
        solves_dial: The dial is no share: `dial_for` needs `AdaptiveModel.calibrate` to find its values.
        supports_data_parallel: Whether it can be trained over several processes: its losses average `call.whole(...)`,
            and a ranking of tokens of different rows is given `call.spread`. Every class says so for itself.
        losses_over: What its losses are means over: the `real` tokens, or those that `answers` are predicted from. A
            step that is computed in several pieces puts them together by it.
        draws: Decisions outside of training are drawn at random. Draws of different documents have to be independent
            (`call.draw_counters`), which `adaptive-bench check` holds the method to.
        adapts: Which tokens skip hangs on the tokens, or on where they stand. Not so where none, all, or tokens drawn
            at random do: then other tokens' decisions are worth the same, and have no control (shuffled decisions).
        once_per_prompt: One decision a site holds for all tokens that follow a prompt (`method.routers`).
        prompts_only: Tokens skip in prompts alone: what is written runs everything, whatever the dial.
        skips_whole_layers: Its dial is a number of layers that no token runs. A training towards a saving is then one
            for a number of layers: where a run has several targets, it trains the method for each that they need.
        trains: Whether a run fine-tunes it; the control that shows the pretrained model as it is says no.
        trains_alike: Whether both semantics are trained alike.
        at_inference: Parameters that matter at inference only; specs that differ in them share a training.
        paper_class: What decisions depend on in `paper` semantics: earlier text only (C0, as always in `bench`), the
            whole sequence (C1), or the batch (C2). `adaptive-bench check` holds the method to it.
        wants_layer_states: Its losses read the residual stream after every layer (`call.layer_states`).
        thresholds: Calibrated thresholds, for methods that compare scores; else `None`.
        fitted: What `fit` measures, for methods that need more of held-out text than thresholds; else `None`.
        step, total_steps: Progress of training; to ask for it in training before `begin_step` told it is refused.
        target: Share of token-branches that are skipped at the end of training, for methods that train towards a saving
            (`takes_target`); the harness sets it, so that all of them aim at the same saving. Where branches are spared
            (`Sparing`), a method reads as much as its remaining ones have to skip, as if none were.
        listeners: Called with every site's view and decision, in execution order.
    """

    Config: ClassVar[type[MethodConfig]] = MethodConfig
    unit: ClassVar[Literal["branch", "layer"]] = "branch"
    paper_class: ClassVar[CausalityClass] = "C0"
    wants_layer_states: ClassVar[bool] = False
    solves_dial: ClassVar[bool] = False
    supports_data_parallel: ClassVar[bool] = False
    losses_over: ClassVar[Literal["real", "answers"]] = "real"
    draws: ClassVar[bool] = False
    adapts: ClassVar[bool] = True
    once_per_prompt: ClassVar[bool] = False
    prompts_only: ClassVar[bool] = False
    skips_whole_layers: ClassVar[bool] = False
    trains: ClassVar[bool] = True
    trains_alike: ClassVar[bool] = False
    at_inference: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, config: MethodConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__()
        self.config = config
        self.backbone_size = (backbone.num_layers, backbone.hidden_size)
        self.semantics = semantics
        self.seed = seed
        self.thresholds: Thresholds | None = None
        self.fitted: Fitted | None = None
        self.dial_table = DialTable()
        self.spared = frozenset()
        self.keep_first = False
        self.listeners: list[Callable[[SiteView, Decision], None]] = []
        self._progress: tuple[int, int] | None = None
        self.target = DEFAULT_TARGET
        self.value = self.dial.skip_nothing

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Scores are computed in fp32 whatever the backbone's type: a method follows to a device, not to a type."""

        def moved(tensor: Tensor) -> Tensor:
            wanted = fn(tensor)
            return wanted if wanted.dtype == tensor.dtype else tensor.to(wanted.device)

        return super()._apply(moved, recurse)

    def _lacks(self, name: str, what: str) -> PluginFault:
        return PluginFault(
            f"Every method gives `{name}`, {what}, but {in_plugin(type(self))} has none. Add it to the class; "
            f"`adaptive-bench check` tries all that a method does."
        )

    @property
    def dial(self) -> DialSpec:
        """Name and range of the dial."""
        raise self._lacks("dial", "a property with the DialSpec of the one value that moves what it saves")

    @property
    def kv_policy(self) -> KVPolicy:
        """What a token that skips attention leaves in the cache."""
        return "recompute"

    @property
    def repeatable(self) -> bool:
        """Whether a decode step can be recorded once and repeated on the device without asking the method again.

        So it is where `decide` and `decide_ahead` read no value on the host and whatever differs from one step to the
        next is in tensors of a fixed shape: those of the call and of `call.session.state`. Waiting tokens (`defer`)
        come in any number.
        """
        return self.kv_policy != "defer"

    @property
    def max_saved_tokens(self) -> float:
        """Largest share of token-branches the dial can skip; by default all at the eligible sites."""
        return len(self.eligible_sites) / (2 * self.backbone_size[0])

    @property
    def eligible_sites(self) -> frozenset[Site]:
        """Branches at which some token may skip at some dial value; by default all. `adaptive-bench check` holds the
        method to it.
        """
        return every_branch(range(self.backbone_size[0]))

    @property
    def decides_by_layer(self) -> bool:
        """Whether attention and MLP of a layer share one answer: a layer of which one is spared is spared whole."""
        return self.unit == "layer"

    @property
    def skip_share(self) -> float:
        """Share of tokens to skip at a site where the method decides, at the current dial (and training step)."""
        return 0.0

    @property
    def freezes_backbone(self) -> bool:
        """Whether only the method's own parameters train."""
        return False

    @property
    def defer_layer(self) -> int:
        """With the KV policy `defer`: the layer before which tokens leave and wait."""
        raise self._lacks("defer_layer", "which the KV policy `defer` asks for")

    def dial_for(self, saved_tokens: float) -> float:
        """The dial value expected to skip that share of all token-branches."""
        if not self.solves_dial:
            raise self._lacks("dial_for", "what gives the value of the dial for a share of saved tokens")
        if saved_tokens > 0 and len(self.dial_table.measured) == 1:
            raise UsageError(
                f"The dial {self.dial.name!r} has no value known for {saved_tokens:.0%} saved tokens. "
                "Call model.calibrate(batches, savings) with held-out training text first."
            )
        return self.dial.at(self.dial_table.nearest(min(saved_tokens, self.max_saved_tokens))[0])

    @classmethod
    def takes_target(cls, config: MethodConfig) -> bool:
        """Whether training moves towards `target`: it has a schedule, and the spec does not fix where that ends."""
        return config.target_parameter is not None and getattr(config, config.target_parameter) is None

    @classmethod
    def initial_change(cls, config: MethodConfig) -> InitialChange | None:
        """Why an untrained model that skips nothing is not the backbone; `None`: it is, at every width.

        `adaptive-bench check` holds the method to either.
        """
        return None

    @classmethod
    def starts_from(cls, spec: MethodSpec) -> MethodSpec | None:
        """The spec whose trained backbone this method's training starts from; `None` is the pretrained one."""
        return None

    @property
    def prepares_training(self) -> bool:
        """Whether `prepare_training` has to be called before training."""
        return False

    def prepare_training(self, text: HeldOutText) -> None:
        """Measure on the model before its training what the training needs, and keep it among the method's buffers.

        Called by `AdaptiveModel.prepare_training`, with a dial that skips nothing.
        """

    def fit(self, text: HeldOutText) -> None:
        """Measure what `fitted` is to hold. Called by `AdaptiveModel.calibrate`, with a dial that skips nothing."""
        raise self._lacks("fit", "which measures what `fitted` is to hold")

    def decide(self, view: SiteView) -> Decision:
        """Which tokens execute the branch, and with what scale."""
        if view.call.ahead is None:
            raise self._lacks("decide", "what gives the Decision of a site")
        return view.call.ahead[view.site.number if self.unit == "branch" else view.site.layer]

    def pass_over(self, view: SiteView) -> None:
        """Called in place of `decide` at a spared site, for a method that carries something from site to site."""

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision] | None:
        """The answers of a whole call, one per site in execution order, of a method that looks at no hidden state.

        The engine then knows every shape before it runs the first branch and waits for the device once per call
        instead of once per branch; `decide` hands them out. `None`: `decide` has to answer at every site.
        """
        return None

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Auxiliary losses of a training call by name: weight and raw value, each a mean over real tokens."""
        return {}

    def main_loss_weight(self, call: ForwardCall) -> float:
        """Weight of the cross entropy of the model's own output."""
        return 1.0

    def begin_step(self, step: int, total_steps: int) -> None:
        """Called before each optimizer step, `step` in 1 .. total_steps: schedules read these."""
        self._progress = step, total_steps

    def end_training(self) -> None:
        """Called after the last optimizer step: another training has to tell its schedules where it stands."""
        self._progress = None

    @property
    def step(self) -> int:
        """The optimizer step under way, from 1."""
        return self._stand()[0]

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the training."""
        return self._stand()[1]

    def _stand(self) -> tuple[int, int]:
        if self._progress is None and self.training:
            raise UsageError(
                f"The schedules of {type(self).__name__} have to know where training stands, got no begin_step before "
                f"the first training step. Call model.begin_step(step, total_steps) before every optimizer step; with "
                f"transformers.Trainer pass callbacks=[AdaptiveCallback()]."
            )
        return self._progress or (1, 1)

    def annealed(self, start: float, end: float) -> float:
        """A training target at the current step, on the schedule all methods share (`method.dial`)."""
        return annealed(start, end, self.step, self.total_steps)

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """What has to be trained for this spec. Specs that differ in inference only give the same one."""
        params = tuple(pair for pair in spec.params if pair[0] not in cls.at_inference)
        return MethodSpec(spec.name, params, "bench" if cls.trains_alike else spec.semantics)

    @classmethod
    def parse_config(cls, spec: MethodSpec) -> MethodConfig:
        """The config of a spec."""
        unknown = [key for key, _ in spec.params if key not in cls.Config.model_fields]
        if unknown:
            hint = registry.did_you_mean(unknown[0], cls.Config.model_fields)
            raise UsageError(f"{spec.name} has no parameter {unknown[0]!r} (in {str(spec)!r}). {hint}")
        try:
            return cls.Config.model_validate(dict(spec.params))
        except ValidationError as error:
            first = error.errors()[0]
            if not first["loc"]:  # parameters that do not go together
                raise UsageError(f"{spec.name}: {rule_of(first)} (in {str(spec)!r}).") from error
            where = ".".join(map(str, first["loc"]))
            if first["type"] == "missing":
                raise UsageError(
                    f"{spec.name} has no default for its parameter {where!r}, and {str(spec)!r} gives none. Write "
                    f"{spec.name}[{where}=...]."
                ) from error
            raise UsageError(
                f"{spec.name}: {where} is wrong, got {first['input']!r} in {str(spec)!r}: {rule_of(first)}."
            ) from error


def initialised_linear(inputs: int, outputs: int, *, std: float, bias: float) -> nn.Linear:
    """A linear map with normal weights and a constant bias, as gates and routers start."""
    linear = nn.Linear(inputs, outputs)
    if linear.weight.is_meta:  # built for its sizes alone; drawing no values takes a millisecond
        return linear
    nn.init.normal_(linear.weight, std=std)
    nn.init.constant_(linear.bias, bias)
    return linear


@dataclass(frozen=True)
class InitialChange:
    """How far an untrained model is from the backbone, where it skips nothing and where its training starts.

    Attributes:
        reason: Why the method starts so, in a sentence, with its source.
        bound: Standard deviation of the change of a logit at skip-nothing, as a share of the logits' own, that is not
            exceeded on any backbone the conformance suite tries; 0 where logits are the backbone's.
        skipped: Share of the token-branches that may skip which training leaves out at its first step, that is not
            exceeded there either; 0 where it is next to nothing.
    """

    reason: str
    bound: float
    skipped: float = 0.0
