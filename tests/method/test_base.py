"""What is said of a method that lacks a part, and of parameters that do not go together."""

import math
from types import SimpleNamespace

import pytest

from adaptive_bench import registry
from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.method import DialSpec, Method, MethodConfig, method_class
from adaptive_bench.spec import MethodSpec

BACKBONE = SimpleNamespace(num_layers=2, hidden_size=4)


class WithoutDial(Method):
    pass


class WithDial(Method):
    dial = DialSpec("share", 0.0, 1.0, 0.0)


def test_a_missing_part_is_named():
    with pytest.raises(PluginFault, match=r"`dial`, .* but WithoutDial has none"):
        WithoutDial(MethodConfig(), BACKBONE, "bench", 0)
    method = WithDial(MethodConfig(), BACKBONE, "bench", 0)
    with pytest.raises(PluginFault, match=r"`dial_for`, .* but WithDial has none"):
        method.dial_for(0.1)
    with pytest.raises(PluginFault, match=r"`decide`, .* but WithDial has none"):
        method.decide(SimpleNamespace(call=SimpleNamespace(ahead=None)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gateskip[budget_start=0.5,budget_end=0.9]", "budget_end is at most budget_start"),
        ("mod[capacity_start=0.5,capacity=0.9]", "capacity is at most capacity_start"),
    ],
)
def test_what_falls_in_training_does_not_end_above_its_start(text, said):
    spec = MethodSpec.parse(text)
    with pytest.raises(UsageError, match=said) as refused:
        method_class(spec).parse_config(spec)
    assert "got 0.9 and 0.5" in str(refused.value) and text.partition("[")[0] in str(refused.value)


def test_a_parameter_without_a_default_is_asked_for():
    class Narrow(WithDial):
        class Config(MethodConfig):
            width: int

    with pytest.raises(UsageError, match=r"'width', and 'mine' gives none. Write mine\[width=...\]"):
        Narrow.parse_config(MethodSpec("mine"))
    assert Narrow.parse_config(MethodSpec("mine", {"width": "3"})).width == 3


@pytest.mark.parametrize("text", ["gateskip[budget_start=0.9,budget_end=0.9]", "gateskip[budget_start=0.5]"])
def test_it_may_stay_and_its_end_may_be_the_runs(text):
    spec = MethodSpec.parse(text)
    assert method_class(spec).parse_config(spec).budget_start in (0.5, 0.9)


def test_schedules_are_of_parameters_that_there_are():
    for name in registry.names("methods"):
        config = method_class(MethodSpec(name)).Config
        assert {*config.falling, *config.falling.values()} <= set(config.model_fields)


@pytest.mark.parametrize("ends", [(1.0, 0.0, 1.0), (0.0, 1.0, 5.0), (0.0, 1.0, math.nan)])
def test_a_dial_has_a_range_and_skips_nothing_at_an_end_of_it(ends):
    with pytest.raises(PluginFault, match="a range and skips nothing at one end"):
        DialSpec("share", *ends)


@pytest.mark.parametrize("answer", [math.nan, 100])
def test_what_a_plugin_answers_for_a_saving_is_held_to_its_dial(answer):
    method = WithDial(MethodConfig(), BACKBONE, "bench", 0)
    method.dial_for = lambda saved_tokens: answer
    with pytest.raises(PluginFault, match=r"dial_for of WithDial .* for a saving of 0\.1 is no value of its dial"):
        method.checked_dial(0.1)
