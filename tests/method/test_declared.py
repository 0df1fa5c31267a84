"""What a method says of itself is held to its kinds."""

from types import SimpleNamespace
from typing import ClassVar

import pytest
from pydantic import Field

from adaptive_bench import registry
from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.method import DialSpec, Method, MethodConfig, MethodSpec, method_class, starting_spec, training_spec
from adaptive_bench.method.declared import check_class, check_method

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
