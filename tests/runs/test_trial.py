"""A plugin's method is tried on a tiny model, and what it answers has the shape and type that the engine takes."""

import math

import pytest
import torch

from adaptive_bench import registry
from adaptive_bench.errors import PluginFault
from adaptive_bench.method import Decision, DialSpec, Method, MethodConfig, MethodSpec
from adaptive_bench.runs.model_checks import try_method


class Mine(Method):
    """Skips every other token where its dial is up."""

    Config = MethodConfig
    dial = DialSpec("share", 0.0, 1.0, 0.0)

    def dial_for(self, saved_tokens):
        return saved_tokens

    def decide(self, view):
        keep = view.call.positions % 2 == 0 if self.value and not self.training else torch.ones_like(view.call.valid)
        return self.decision(view, keep)

    def decision(self, view, keep):
        return Decision(keep=keep)


def tried(monkeypatch, **parts):
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("methods", "odd")(type("Odd", (Mine,), parts))
    return try_method(MethodSpec("odd"), "llama", 2)


def column(keep, value):
    return torch.full((*keep.shape, 1), value)


def raises_when_writing(view, keep):
    if view.call.phase == "decode":
        raise ValueError("only now")
    return Decision(keep=keep)


DECISIONS = {
    r"Odd\.decide must give a Decision, got NoneType": lambda view, keep: None,
    r"keep is a boolean tensor of shape \(2, 24\) .* got torch.float32": lambda view, keep: Decision(keep=keep.float()),
    r"keep is a boolean tensor .* got torch.bool of shape \(2, 1\)": lambda view, keep: Decision(keep=keep[:, :1]),
    "scale has floating-point numbers .* got torch.int64": lambda view, keep: Decision(scale=column(keep, 1)),
    "input_scale has floating-point .* got float": lambda view, keep: Decision(input_scale=2.0),
    "otherwise gives numbers of shape": lambda view, keep: Decision(keep=keep, otherwise=lambda tokens: view.hidden),
    "only now": raises_when_writing,
}


def test_a_sound_method_passes(monkeypatch):
    def all_parts(view, keep):
        instead = None if view.call.training else lambda tokens: view.hidden.flatten(0, 1)[tokens] * 0.1
        return Decision(keep=keep, scale=None if view.call.training else column(keep, 0.5), otherwise=instead)

    assert tried(monkeypatch) is None
    assert tried(monkeypatch, decision=lambda self, view, keep: all_parts(view, keep)) is None


@pytest.mark.parametrize("said", DECISIONS)
def test_an_odd_decision_is_refused_with_the_method_and_the_rule(said, monkeypatch):
    decision = DECISIONS[said]
    found = tried(monkeypatch, decision=lambda self, view, keep: decision(view, keep))
    assert type(found) is PluginFault
    with pytest.raises(PluginFault, match=said):
        raise found


def test_answers_ahead_are_one_for_each_site(monkeypatch):
    found = tried(monkeypatch, decide_ahead=lambda self, call: [Decision()] * 9, decide=Method.decide)
    assert isinstance(found, PluginFault) and "decide_ahead must give None or 4 decisions" in str(found)


def test_a_loss_is_finite(monkeypatch):
    found = tried(monkeypatch, losses=lambda self, call: {"mine": (1.0, torch.tensor(math.nan))})
    assert "The loss of a first step of training is finite" in str(found) and "mine nan" in str(found)
