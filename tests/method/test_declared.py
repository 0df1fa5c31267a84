"""What a method says of itself is held to its kinds."""

from types import SimpleNamespace
from typing import ClassVar

import pytest
from pydantic import Field
from torch import nn

from adaptive_bench import registry
from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.method import (
    DialSpec,
    Method,
    MethodConfig,
    MethodSpec,
    method_class,
    method_of,
    starting_spec,
    training_spec,
)
from adaptive_bench.method.declared import check_class, check_method
from adaptive_bench.model import AdaptiveModel

BACKBONE = SimpleNamespace(num_layers=2, hidden_size=4)


class Mine(Method):
    """A method.

    With more to say.
    """

    dial = DialSpec("share", 0.0, 1.0, 0.0)


def test_every_method_of_this_package_is_in_order():
    for name in registry.names("methods"):
        check_class(method_class(MethodSpec(name)))
    check_class(Mine)
    check_method(Mine(MethodConfig(), BACKBONE, "bench", 0))


@pytest.mark.parametrize(
    ("name", "value", "called"),
    [
        ("unit", "token", "unit"),
        ("unit", None, "unit"),
        ("paper_class", "C9", "paper_class"),
        ("draws", "yes", "draws"),
        ("trains", None, "trains"),
        ("adapts", 1, "adapts"),
        ("__doc__", 5, "the docstring"),
        ("__doc__", "x" * 10**6, "the docstring"),
        ("__doc__", "\x1b[31mred", "the docstring"),
    ],
)
def test_a_class_attribute_of_another_kind_is_refused(name, value, called):
    with pytest.raises(PluginFault, match=f"Of the method Odd, {called} is .*, got .* Correct it in the class"):
        check_class(type("Odd", (Mine,), {name: value}))


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("training_spec", classmethod(lambda cls, spec: spec), r"a classmethod .* training_spec\(cls, config, spec\)"),
        ("takes_target", lambda config: True, r"a classmethod .* takes_target\(cls, config\)"),
        ("losses", lambda self: {}, r"a function that is called as losses\(self, call\)"),
        ("__init__", lambda self, config: None, r"a function that is called as __init__\(self, config, backbone, "),
        ("begin_step", 5, r"a function that is called as begin_step\(self, step, total_steps\)"),
        ("kv_policy", lambda self: "evict", "a property"),
    ],
)
def test_what_stands_in_place_of_the_base_classs_is_called_like_it(name, value, wanted):
    with pytest.raises(PluginFault, match=f"Of the method Odd, {name} is {wanted}.*, got "):
        check_class(type("Odd", (Mine,), {name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("training_spec", staticmethod(lambda config, spec: spec)),
        ("begin_step", lambda self, *args: None),
        ("losses", lambda self, call, scale=1.0: {}),
        ("kv_policy", "evict"),
    ],
)
def test_another_form_that_can_be_called_alike_will_do(name, value):
    check_class(type("Fine", (Mine,), {name: value}))


def test_a_parameter_has_one_name():
    class Config(MethodConfig):
        width: int = Field(1, alias="w")

    with pytest.raises(PluginFault, match="the name of the parameter width is its only one: it has no alias, got 'w'"):
        check_class(type("Odd", (Mine,), {"Config": Config}))


def test_what_a_method_makes_of_its_spec_and_itself_is_held_to_it(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    kinds = {
        "no_config": {"parse_config": classmethod(lambda cls, spec: None)},
        "no_super": {"__init__": lambda self, config, backbone, semantics, seed: nn.Module.__init__(self)},
        "none_at_all": {"__init__": lambda self, *_: setattr(self, "router", nn.Linear(2, 2))},
        "ill": {"__init__": lambda self, *given: Mine.__init__(self, *given) or self.absent},
    }
    for name, parts in kinds.items():
        registry.register("methods", name)(type(name, (Mine,), parts))
    with pytest.raises(PluginFault, match="What parse_config of a method gives is its Config, got None of no_config"):
        method_of(MethodSpec("no_config"), BACKBONE)
    with pytest.raises(PluginFault, match="calls that of its base class first, but that of no_super does not"):
        method_of(MethodSpec("no_super"), BACKBONE)
    with pytest.raises(PluginFault, match="calls that of its base class first, but that of none_at_all does not"):
        method_of(MethodSpec("none_at_all"), BACKBONE)
    with pytest.raises(AttributeError, match="absent"):
        method_of(MethodSpec("ill"), BACKBONE)


class Frozen(Mine):
    freezes_backbone = True


class KeepsTheBackbone(Mine):
    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        self.inner = backbone.model


class DoesNotTell(Mine):
    def begin_step(self, step, total_steps):
        pass


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Frozen, "freezes_backbone = True and none of Frozen"),
        (KeepsTheBackbone, r"but inner\..* of KeepsTheBackbone belong to the backbone"),
        (DoesNotTell, r"but that of DoesNotTell does not\. Begin it with super\(\)\.begin_step\(step, total_steps\)"),
    ],
)
def test_a_method_that_cannot_be_trained_is_refused(kind, said, make_backbone, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("methods", "odd")(kind)
    with pytest.raises(PluginFault, match=said):
        model = AdaptiveModel.build(make_backbone("llama"), "odd")
        model.begin_step(1, 2)
        model.parameter_groups(1e-3)


def test_something_trains(make_backbone):
    model = AdaptiveModel.build(make_backbone("llama"), "dense")
    model.requires_grad_(False)
    with pytest.raises(UsageError, match="A training changes some parameter, got a model of which all are frozen"):
        model.parameter_groups(1e-3)


def test_what_parameters_come_to_on_a_model_is_a_mapping():
    class Config(MethodConfig):
        def on_model(self, layers):
            return layers

    with pytest.raises(PluginFault, match="what on_model of its Config gives is a mapping, got 2"):
        check_method(Mine(Config(), BACKBONE, "bench", 0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("search_space", {"a": (1, 2)}),
        ("search_space", None),
        ("companions", None),
        ("falling", {"a": "nosuch"}),
        ("falling", 5),
    ],
)
def test_a_config_attribute_of_another_kind_is_refused(name, value):
    config = type("Config", (MethodConfig,), {"__annotations__": {name: ClassVar}, name: value})
    with pytest.raises(PluginFault, match=f"Of the method Odd, {name} is a mapping .*, got "):
        check_class(type("Odd", (Mine,), {"Config": config}))


@pytest.mark.parametrize("text", ["y" * 10**6, "\x07"])
def test_a_description_of_a_parameter_is_a_line(text):
    class Config(MethodConfig):
        width: int = Field(1, description=text)

    with pytest.raises(PluginFault, match="Of the method Odd, the description of the parameter width is one line"):
        check_class(type("Odd", (Mine,), {"Config": Config}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kv_policy", "zzz"),
        ("kv_policy", None),
        ("max_saved_tokens", 2.0),
        ("max_saved_tokens", float("nan")),
        ("max_saved_tokens", "x"),
        ("eligible_sites", {0, 1}),
        ("eligible_sites", None),
        ("freezes_backbone", "no"),
        ("repeatable", 0),
        ("initial_change", lambda config: "odd"),
        ("takes_target", lambda config: "no"),
    ],
)
def test_a_property_of_another_kind_is_refused(name, value):
    value = staticmethod(value) if callable(value) else value
    method = type("Odd", (Mine,), {name: value})(MethodConfig(), BACKBONE, "bench", 0)
    with pytest.raises(PluginFault, match=f"Of the method Odd, {name} is .*, got .* Correct it in the class"):
        check_method(method)


@pytest.mark.parametrize("layer", [2, -1, "1", True])
def test_tokens_leave_before_a_layer_that_is_there(layer):
    kind = type("Odd", (Mine,), {"kv_policy": "defer", "defer_layer": layer})
    with pytest.raises(PluginFault, match="defer_layer is the number of one of 2 layers"):
        check_method(kind(MethodConfig(), BACKBONE, "bench", 0))


@pytest.mark.parametrize("dial", [None, "share", 0.5])
def test_a_dial_is_a_dial_spec(dial):
    with pytest.raises(PluginFault, match=r"The dial of a method is a DialSpec, got \w+ of Odd"):
        type("Odd", (Mine,), {"dial": dial})(MethodConfig(), BACKBONE, "bench", 0)


@pytest.mark.parametrize(
    "fields", [(5, 0.0, 1.0, 0.0), ("a\nb", 0.0, 1.0, 0.0), ("a", "0", "1", "0"), ("a", None, 1, 1)]
)
def test_a_dial_has_a_name_and_numbers(fields):
    with pytest.raises(PluginFault, match=r"A dial has a name, one line .* got DialSpec"):
        DialSpec(*fields)


@pytest.mark.parametrize("named", [None, "dense", MethodSpec("nosuch"), MethodSpec("dense", (("a", "1"),))])
def test_specs_that_a_method_names_are_there(named, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})

    @registry.register("methods", "odd")
    class Odd(Mine):
        training_spec = classmethod(lambda cls, config, spec: named)
        starts_from = classmethod(lambda cls, spec: named)

    with pytest.raises(PluginFault, match=r"What has to be trained .* from the training_spec of 'odd' \(.*Correct the"):
        training_spec(MethodSpec("odd"))
    if named is not None:
        with pytest.raises(PluginFault, match=r"What the training of a method starts from .* starts_from of 'odd' \("):
            starting_spec(MethodSpec("odd"))
    with pytest.raises(UsageError, match="odd has no parameter 'width'"):
        training_spec(MethodSpec("odd", (("width", "1"),)))
