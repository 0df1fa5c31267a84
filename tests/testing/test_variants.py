from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from adaptive_bench.method import Method, MethodConfig
from adaptive_bench.testing.suite import method_specs, variants


class ManyKinds(MethodConfig):
    companions: ClassVar[Mapping[str, str]] = {"shape=round": "every=3"}
    unsound: ClassVar[frozenset[str]] = frozenset({"shape=bent"})
    shape: Literal["flat", "round", "square", "bent"] = "flat"
    open_: Literal["a", "b"] | None = None
    gated: bool = True
    every: int = Field(2, examples=[2, 4])
    weight: float = 0.5


class Many(Method):
    Config = ManyKinds


def test_each_parameter_with_few_values_varies_alone(register_method):
    register_method(Many, "many")
    assert [str(spec) for spec in variants("many")] == [
        "many[every=3,shape=round]",
        "many[shape=square]",
        "many[open_=a]",
        "many[open_=b]",
        "many[gated=false]",
        "many[every=4]",
    ]
    assert [str(spec) for spec in method_specs("many")[:2]] == ["many", "many@paper"]


def test_every_ablation_axis_of_gateskip_is_there():
    """The rows of the paper's ablation table, the axes of the released code, and what we add."""
    axes = {key for spec in variants("gateskip") for key, _ in spec.params}
    assert axes == {
        *("shape", "sharing", "architecture", "placement", "loss", "skip_unit", "skip_modules", "stride", "frozen"),
        *("input", "detach", "kv", "compensate"),
    }
