"""Base class of methods: a method has parameters and one dial, and gives one decision per site.

Which branches to spare is measured on the model (`adaptive_bench.model.interventions`) and given to the method. The
engine then runs them for all tokens without asking the method. A method is written as if nothing were spared: its dial,
its target and its sites refer to all branches at which it may skip. `target`, `checked_dial` and `claimed_saving`
convert between a share of all token-branches and the share that the remaining branches have to skip.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import ValidationError
from torch import Tensor, nn

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone, Site, described, every_branch
from adaptive_bench.errors import PluginFault, UsageError, in_plugin, message_of
from adaptive_bench.method.call import ForwardCall
from adaptive_bench.method.decisions import Decision
from adaptive_bench.method.dial import DialSpec, DialTable, annealed, asked_saving
from adaptive_bench.method.fitted import Fitted, HeldOutText
from adaptive_bench.method.method_config import InitialChange, MethodConfig
from adaptive_bench.method.site_view import SiteView
from adaptive_bench.method.thresholds import Thresholds
from adaptive_bench.spec import MethodSpec, Semantics
from adaptive_bench.validation import rule_of

CausalityClass = Literal["C0", "C1", "C2"]
KVPolicy = Literal["recompute", "copy_below", "evict", "defer"]
DEFAULT_TARGET = 0.2  # GateSkip's budget, 1.0 -> 0.8 (section 4.1); used unless a run sets another target


class Method(nn.Module):
    """Base class of all methods. A subclass defines `Config`, `dial`, `decide` and whatever differs from the defaults.

    Args:
        config: The method's parameters.
        backbone: The model it decides for.
        semantics: `bench` (causal, batch-free) or `paper` (what its authors would run).
        seed: Seed of the method's random draws.

    Attributes:
        unit: `branch` (the method decides before every attention and every MLP) or `layer` (it decides once per layer,
            for both branches).
        value: Current dial value.
        solves_dial: The dial is not a share of tokens, so `dial_for` needs values that `AdaptiveModel.calibrate` found.
        supports_data_parallel: Whether several processes can train it together. Its losses must average over
            `call.whole(...)`, and its decisions must not depend on other rows. Not inherited: each class states it for
            itself.
        losses_over: The tokens that its losses average over: all `real` tokens, or the tokens from which `answers` are
            predicted. Micro-batches of one step are weighted accordingly.
        draws: Decisions outside training are random. Draws for different documents must be independent
            (`call.draw_counters`); `adaptive-bench check` tests this.
        adapts: The choice of skipping tokens depends on the tokens or their positions. It does not if no token, every
            token or a random token skips; exchanging decisions between tokens (the shuffled control) then shows
            nothing.
        once_per_prompt: A site makes one decision per prompt, for all tokens that follow it (`prompt_outputs`).
        prompts_only: Only tokens of prompts skip; generated tokens run everything, whatever the dial.
        skips_whole_layers: The dial is the number of layers that no token runs. Training towards a saving is then
            training for a number of layers, and a run with several targets trains the method once for each number.
        trains: Whether a run fine-tunes it. False for the control that shows the pretrained model unchanged.
        trains_alike: Whether training is the same in both semantics.
        at_inference: Parameters that matter only at inference; specs that differ only in them share one training.
        paper_class: What decisions depend on in `paper` semantics: earlier text only (C0, as always in `bench`), the
            whole sequence (C1), or the batch (C2). `adaptive-bench check` tests this.
        wants_layer_states: Its losses read the residual stream after every layer (`call.layer_states`).
        thresholds: Calibrated thresholds, for methods that compare scores; else `None`.
        fitted: What `fit` measures, for methods that need more from held-out text than thresholds; else `None`.
        step, total_steps: Progress of training. Reading them in training before the first `begin_step` is an error.
        target: Share of token-branches to skip at the end of training, for methods that train towards a saving
            (`takes_target`). The harness sets it, so that all methods aim at the same saving. If branches are spared, a
            method reads the share that the remaining branches have to skip.
        spares: Whether the method decides for single tokens and can therefore spare some sites. False for early exit,
            which skips everything from the exit on, and for methods whose dial is a number of layers.
        spared: Sites at which every token executes and the method is not asked.
        keep_first: The first token of every text executes everything.
        listeners: Called with every site's view and decision, in execution order.
    """

    Config: ClassVar[type[MethodConfig]] = MethodConfig
    unit: ClassVar[Literal["branch", "layer"]] = "branch"
    spares: ClassVar[bool] = True
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
        self.dial_table = DialTable()  # used if `solves_dial`
        self.spared: frozenset[Site] = frozenset()
        self.keep_first = False
        self.listeners: list[Callable[[SiteView, Decision], None]] = []
        self._progress: tuple[int, int] | None = None
        self.target = DEFAULT_TARGET
        # Last, since a subclass's `dial` may depend on anything above.
        self.value = self.dial.skip_nothing

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to another device but keep the dtype: scores are computed in fp32 whatever the backbone's dtype."""

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
        """Name and range of the dial. A class attribute will do if it depends on nothing, as for what follows."""
        raise self._lacks("dial", "the DialSpec of the one value that moves what it saves")

    @property
    def kv_policy(self) -> KVPolicy:
        """What a token that skips attention leaves in the cache."""
        return "recompute"

    @property
    def max_saved_tokens(self) -> float:
        """Largest share of token-branches that the dial can skip; by default all at the eligible sites."""
        return len(self.eligible_sites) / (2 * self.backbone_size[0])

    @property
    def eligible_sites(self) -> frozenset[Site]:
        """Branches where some token may skip at some dial value; by default all. `adaptive-bench check` tests this."""
        return every_branch(range(self.backbone_size[0]))

    @property
    def decides_by_layer(self) -> bool:
        """Whether attention and MLP of a layer share one decision, so that sparing one of them spares the layer."""
        return self.unit == "layer"

    @property
    def skip_share(self) -> float:
        """Share of tokens to skip at each site where the method decides, at the current dial (and training step)."""
        return 0.0

    @property
    def freezes_backbone(self) -> bool:
        """Whether only the method's own parameters train."""
        return False

    @property
    def defer_layer(self) -> int:
        """The layer before which tokens leave and wait, for the KV policy `defer`."""
        raise self._lacks("defer_layer", "which the KV policy `defer` needs")

    def dial_for(self, saved_tokens: float) -> float:
        """The dial value expected to skip the share `saved_tokens` of all token-branches."""
        if not self.solves_dial:
            raise self._lacks("dial_for", "which gives the dial value for a share of saved tokens")
        # Every table has the entry (0, 0), which takes no measurement.
        if saved_tokens > 0 and len(self.dial_table.measured) == 1:
            raise UsageError(
                f"The dial {self.dial.name!r} has no value known for {saved_tokens:.0%} saved tokens. "
                "Call model.calibrate(batches, savings) with held-out training text first."
            )
        return self.dial.at(self.dial_table.nearest(min(saved_tokens, self.max_saved_tokens))[0])

    def set_spared(self, sites: Collection[Site], keep_first: bool = False) -> None:
        """Spare these sites; call this before training and calibration.

        A method that cannot spare sites (`spares`) stays unchanged. A method that decides for both branches of a layer
        at once spares the whole layer.
        """
        layers, sites = self.backbone_size[0], {Site(*site) for site in sites}
        if unknown := sites - every_branch(range(layers)):
            raise UsageError(
                f"Spared sites are attention and MLP of layers 0 to {layers - 1}, got {next(iter(unknown))!r}. Write "
                f'Site(0, "mlp").'
            )
        if not self.spares:
            return
        whole = every_branch(site.layer for site in sites) if self.decides_by_layer else frozenset(sites)
        # Without eligible sites (the dense control) there is nothing to leave.
        if (eligible := self.eligible_sites) and eligible <= whole:
            raise UsageError(
                f"At least one site must be left at which tokens may skip, got all of them spared ("
                f"{described(eligible)} of {type(self).__name__}). Spare fewer, or give it other parameters."
            )
        self.spared, self.keep_first = whole, bool(keep_first)
        if self.thresholds is not None and whole:
            spared = {site.number for site in whole}
            # Spared sites are never asked for scores, which calibration would report as a fault of the method.
            self.thresholds = Thresholds(site for site in self.thresholds.sites if site not in spared)

    def is_spared(self, site: Site) -> bool:
        """Whether every token executes the site, which may be a whole layer."""
        return (Site(site.layer, "attention") if site.branch == "layer" else site) in self.spared

    @property
    def skippable_sites(self) -> frozenset[Site]:
        """Branches at which some token may skip at some dial value: the eligible ones that are not spared."""
        return self.eligible_sites - self.spared

    @property
    def max_saving(self) -> float:
        """Largest share of all token-branches that the dial can skip."""
        return self.max_saved_tokens * self._left

    @property
    def target(self) -> float:
        """See `Method`. Set as a share of all token-branches; read as the share that the remaining sites must skip."""
        return self._target if not self.spared else min(self._target / self._left, self.max_saved_tokens)

    @target.setter
    def target(self, share: float) -> None:
        self._target = share

    @property
    def target_of_all(self) -> float:
        """The target as it was set: a share of all token-branches."""
        return self._target

    @property
    def _left(self) -> float:
        """Share of the eligible sites that are not spared."""
        if not self.spared or not (eligible := self.eligible_sites):
            return 1.0
        return len(eligible - self.spared) / len(eligible)

    def checked_dial(self, saved_tokens: float) -> float:
        """The dial value expected to skip that share of all token-branches, checked because a plugin may have written
        `dial_for`. `dial_for` is asked for the share that the remaining sites have to skip.
        """
        measured = self.solves_dial or not self.spared  # a solved dial was measured over all token-branches
        value = self.dial_for(saved_tokens if measured else min(saved_tokens / self._left, self.max_saved_tokens))
        try:
            return self.dial.check(value)
        except UsageError as error:
            raise PluginFault(
                f"What dial_for of {in_plugin(type(self))} gives for a saving of "
                f"{saved_tokens:g} is no value of its dial: {message_of(error)}"
            ) from error

    @property
    def claimed_saving(self) -> float | None:
        """Share of all token-branches that the current dial value claims to skip, whatever is skipped in the end.

        It is the saving for which `checked_dial` gives this value. For a solved dial it is the saving measured on
        calibration text, or `None` if nothing was measured.
        """
        if self.value == self.dial.skip_nothing:
            return 0.0
        if self.solves_dial:
            return self.dial_table.saving_at(self.dial.travel(self.value))
        return asked_saving(self.dial_for, self.value, self.max_saved_tokens) * self._left

    @classmethod
    def takes_target(cls, config: Any) -> bool:
        """Whether training moves towards `target`: the method has a schedule whose end the spec does not fix."""
        return config.target_parameter is not None and getattr(config, config.target_parameter) is None

    @classmethod
    def initial_change(cls, config: Any) -> InitialChange | None:
        """How an untrained model that skips nothing differs from the backbone; `None` if the two are equal at every
        width.

        `adaptive-bench check` tests either claim.
        """
        return None

    @classmethod
    def starts_from(cls, spec: MethodSpec) -> MethodSpec | None:
        """The spec whose trained backbone this method's training starts from; `None` means the pretrained backbone."""
        return None

    @property
    def prepares_training(self) -> bool:
        """Whether `prepare_training` must be called before training."""
        return False

    def prepare_training(self, text: HeldOutText) -> None:
        """Measure what training needs on the untrained model, and store it in the method's buffers.

        Called by `AdaptiveModel.prepare_training`, with a dial that skips nothing.
        """

    def fit(self, text: HeldOutText) -> None:
        """Measure the tensors of `fitted`. Called by `AdaptiveModel.calibrate`, with a dial that skips nothing."""
        raise self._lacks("fit", "which measures the tensors of `fitted`")

    def decide(self, view: SiteView) -> Decision:
        """Decide which tokens execute the branch, and with what scale."""
        if view.call.ahead is None:
            raise self._lacks("decide", "which gives the Decision of a site")
        return view.call.ahead[view.site.number if self.unit == "branch" else view.site.layer]

    def pass_over(self, view: SiteView) -> None:
        """Called instead of `decide` at a spared site, for methods that carry something from site to site."""

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision] | None:
        """The decisions of a whole call, one per site in execution order, for a method that reads no hidden states.

        The engine then knows every shape before it runs the first branch, and waits for the device once per call
        instead of once per branch; the default `decide` returns these decisions. `None` (the default) means that
        `decide` must be asked at every site.
        """
        return None

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Auxiliary losses of a training call by name: weight, and raw value as a mean over `losses_over`."""
        return {}

    def main_loss_weight(self, call: ForwardCall) -> float:
        """Weight of the cross entropy of the model's own output."""
        return 1.0

    def begin_step(self, step: int, total_steps: int) -> None:
        """Called before each optimizer step, with `step` in 1 .. total_steps. Schedules read both numbers."""
        self._progress = step, total_steps

    def end_training(self) -> None:
        """Called after the last optimizer step. Another training must call `begin_step` again before its first step."""
        self._progress = None

    @property
    def step(self) -> int:
        """The current optimizer step, counted from 1."""
        return self._stand()[0]

    @property
    def total_steps(self) -> int:
        """Number of optimizer steps of the training."""
        return self._stand()[1]

    def _stand(self) -> tuple[int, int]:
        if self._progress is None and self.training:
            raise UsageError(
                f"The schedules of {type(self).__name__} need the current training step, got no begin_step before "
                f"the first training step. Call model.begin_step(step, total_steps) before every optimizer step; with "
                f"transformers.Trainer pass callbacks=[AdaptiveCallback()]."
            )
        return self._progress or (1, 1)

    def annealed(self, start: float, end: float) -> float:
        """A training target at the current step, on the schedule that all methods share (`method.dial`)."""
        return annealed(start, end, self.step, self.total_steps)

    @classmethod
    def training_spec(cls, config: Any, spec: MethodSpec) -> MethodSpec:
        """The spec to train for `spec`. Specs that differ only at inference have the same training spec."""
        params = tuple(pair for pair in spec.params if pair[0] not in cls.at_inference)
        return MethodSpec(spec.name, params, "bench" if cls.trains_alike else spec.semantics)

    @classmethod
    def parse_config(cls, spec: MethodSpec) -> Any:
        """The `Config` of a spec."""
        unknown = [key for key, _ in spec.params if key not in cls.Config.model_fields]
        if unknown:
            hint = registry.did_you_mean(unknown[0], cls.Config.model_fields)
            raise UsageError(f"{spec.name} has no parameter {unknown[0]!r} (in {str(spec)!r}). {hint}")
        try:
            return cls.Config.model_validate(dict(spec.params))
        except ValidationError as error:
            first = error.errors()[0]
            if not first["loc"]:  # a rule about several parameters: no single one is at fault
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
    """A linear map with normally distributed weights and a constant bias, the initialisation of gates and routers."""
    linear = nn.Linear(inputs, outputs)
    if linear.weight.is_meta:  # built only for its sizes: initialising meta tensors still takes a millisecond
        return linear
    nn.init.normal_(linear.weight, std=std)
    nn.init.constant_(linear.bias, bias)
    return linear
