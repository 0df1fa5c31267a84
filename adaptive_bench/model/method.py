"""What a method is to the engine: parameters, one dial, and one answer per site."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

import adaptive_bench
from adaptive_bench import registry
from adaptive_bench.engine.kv_cache import KVPolicy
from adaptive_bench.errors import UsageError
from adaptive_bench.model.dial_solving import DialTable
from adaptive_bench.spec import MethodSpec, Semantics

CausalityClass = Literal["C0", "C1", "C2"]

if TYPE_CHECKING:
    from adaptive_bench.engine.call import ForwardCall, SiteView
    from adaptive_bench.model.backbone import Backbone
    from adaptive_bench.model.calibration import Thresholds
    from adaptive_bench.model.decisions import Decision


class MethodConfig(BaseModel):
    """Parameters of a method. A field is a spec parameter: `name[field=value]`. Unknown ones are refused.

    Attributes:
        companions: For a value that a small model can have only together with another one: `{"a=x": "b=y"}`.
    """

    companions: ClassVar[Mapping[str, str]] = {}
    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class DialSpec:
    """The one value that moves saved compute.

    Attributes:
        name: The method's own word: budget, capacity, threshold, exit layer.
        minimum, maximum: Closed range.
        skip_nothing: The value at which every token executes everything.
    """

    name: str
    minimum: float
    maximum: float
    skip_nothing: float

    def check(self, value: float) -> float:
        """The value, if it is in range.

        Raises:
            UsageError: It is not.
        """
        if not self.minimum <= value <= self.maximum:
            raise UsageError(
                f"The dial {self.name!r} must lie in [{self.minimum:g}, {self.maximum:g}], got {value!r}; "
                f"{self.skip_nothing:g} skips nothing."
            )
        return float(value)

    def at(self, travel: float) -> float:
        """The value a share of the way from `skip_nothing` (0) to the other end of the range (1)."""
        end = self.minimum if self.skip_nothing == self.maximum else self.maximum
        return self.skip_nothing + travel * (end - self.skip_nothing)


class Method(nn.Module):
    """Base of all methods. A subclass gives `Config`, `dial`, `decide` and what else differs from these defaults.

    Args:
        config: The method's parameters.
        backbone: The model it decides for.
        semantics: `bench` (causal, batch-free) or `paper` (the equations literally).
        seed: For whatever the method draws at random.

    Attributes:
        unit: `branch` (asked before every attention and MLP) or `layer` (asked once, the answer holds for both).
        value: Current dial value.
        solves_dial: The dial is no share: `dial_for` needs `AdaptiveModel.calibrate` to find its values.
        paper_class: What decisions depend on in `paper` semantics: earlier text only (C0, as always in `bench`), the
            whole sequence (C1), or the batch (C2). `adaptive-bench check` holds the method to it.
        wants_layer_states: Its losses read the residual stream after every layer (`call.layer_states`).
        thresholds: Calibrated thresholds, for methods that compare scores; else `None`.
        step, total_steps: Progress of training.
    """

    Config: ClassVar[type[MethodConfig]] = MethodConfig
    unit: ClassVar[Literal["branch", "layer"]] = "branch"
    paper_class: ClassVar[CausalityClass] = "C0"
    wants_layer_states: ClassVar[bool] = False
    solves_dial: ClassVar[bool] = False

    def __init__(self, config: MethodConfig, backbone: Backbone, semantics: Semantics, seed: int) -> None:
        super().__init__()
        self.config = config
        self.backbone_size = (backbone.num_layers, backbone.hidden_size)
        self.semantics = semantics
        self.seed = seed
        self.thresholds: Thresholds | None = None
        self.dial_table = DialTable()
        self.step, self.total_steps = 1, 1
        self.value = self.dial.skip_nothing

    @property
    def dial(self) -> DialSpec:
        """Name and range of the dial."""
        raise NotImplementedError

    @property
    def kv_policy(self) -> KVPolicy:
        """What a token that skips attention leaves in the cache."""
        return "recompute"

    @property
    def max_saved_tokens(self) -> float:
        """Largest share of token-branches the dial can skip."""
        return 1.0

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
        raise NotImplementedError

    def dial_for(self, saved_tokens: float) -> float:
        """The dial value expected to skip that share of all token-branches.

        Raises:
            UsageError: The method's dial has to be solved for first (`solves_dial`), and was not.
        """
        if not self.solves_dial:
            raise NotImplementedError
        if saved_tokens > 0 and len(self.dial_table.measured) == 1:
            raise UsageError(
                f"The dial {self.dial.name!r} has no value known for {saved_tokens:.0%} saved tokens. "
                "Call model.calibrate(batches, savings) with held-out training text first."
            )
        return self.dial.at(self.dial_table.nearest(min(saved_tokens, self.max_saved_tokens))[0])

    @classmethod
    def starts_from(cls, spec: MethodSpec) -> MethodSpec | None:
        """The spec whose trained backbone this method's training starts from; `None` is the pretrained one."""
        return None

    def decide(self, view: SiteView) -> Decision:
        """Which tokens execute the branch, and with what scale."""
        raise NotImplementedError

    def losses(self, call: ForwardCall) -> Mapping[str, tuple[float, Tensor]]:
        """Auxiliary losses of a training call by name: weight and raw value, each a mean over real tokens."""
        return {}

    def main_loss_weight(self, call: ForwardCall) -> float:
        """Weight of the cross entropy of the model's own output."""
        return 1.0

    def begin_step(self, step: int, total_steps: int) -> None:
        """Called before each optimizer step, `step` in 1 .. total_steps: schedules read these."""
        self.step, self.total_steps = step, total_steps

    @property
    def progress(self) -> float:
        """0 at the first optimizer step, 1 at the last: (t - 1) / (T - 1)."""
        return min(1.0, (self.step - 1) / max(1, self.total_steps - 1))

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """What has to be trained for this spec. Specs that differ in inference only give the same one."""
        return spec

    @classmethod
    def parse_config(cls, spec: MethodSpec) -> MethodConfig:
        """The config of a spec.

        Raises:
            UsageError: Unknown parameter or bad value.
        """
        unknown = [key for key, _ in spec.params if key not in cls.Config.model_fields]
        if unknown:
            hint = registry.did_you_mean(unknown[0], cls.Config.model_fields)
            raise UsageError(f"{spec.name} has no parameter {unknown[0]!r} (in {str(spec)!r}). {hint}")
        try:
            return cls.Config.model_validate(dict(spec.params))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or spec.name
            raise UsageError(
                f"{spec.name}: {where} is wrong, got {first['input']!r} in {str(spec)!r}: {first['msg']}."
            ) from error


def initialised_linear(inputs: int, outputs: int, *, std: float, bias: float) -> nn.Linear:
    """A linear map with normal weights and a constant bias, as gates and routers start."""
    linear = nn.Linear(inputs, outputs)
    nn.init.normal_(linear.weight, std=std)
    nn.init.constant_(linear.bias, bias)
    return linear


def method_class(spec: MethodSpec) -> type[Method]:
    """The registered class behind a spec.

    Raises:
        UsageError: No method has that name.
    """
    found: type[Method] = registry.get("methods", spec.name)
    return found


def training_spec(spec: MethodSpec) -> MethodSpec:
    """What has to be trained for this spec (untrained random skipping: the dense model).

    Parameters that say what holds anyway are left out, so that `gateskip[shape=vector]` is trained as `gateskip`.
    """
    found = method_class(spec)
    trained = found.training_spec(found.parse_config(spec), spec)
    found = method_class(trained)
    config, fields = found.parse_config(trained), found.Config.model_fields
    told = [pair for pair in trained.params if getattr(config, pair[0]) != fields[pair[0]].get_default()]
    return MethodSpec(trained.name, tuple(told), trained.semantics)


def trained_alike(one: MethodSpec, other: MethodSpec) -> bool:
    """Whether weights trained for one spec serve the other: the same method, trained with equal parameters."""
    first, second = training_spec(one), training_spec(other)
    return (first.name, first.semantics) == (second.name, second.semantics) and (
        method_class(first).parse_config(first) == method_class(second).parse_config(second)
    )


def starting_spec(spec: MethodSpec) -> MethodSpec | None:
    """The spec whose trained backbone the training of this one starts from; `None` is the pretrained backbone."""
    return method_class(spec).starts_from(spec)


def code_digest(spec: MethodSpec, *, work: Literal["training", "evaluation"]) -> str:
    """Digest of the source a result depends on: the method's file, the model core, the engine, and what trains or
    evaluates.
    """
    core = Path(adaptive_bench.__file__).parent
    digest = hashlib.sha256(Path(inspect.getfile(method_class(spec))).read_bytes())
    for part in ("model", "engine", work):
        for file in sorted(core.glob(f"{part}/*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
