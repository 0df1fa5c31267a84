"""A plugin's method is tried on a tiny model, values and all."""

import math

import pytest
import torch

from adaptive_bench import registry
from adaptive_bench.errors import PluginFault
from adaptive_bench.method import Decision, DialSpec, Method, MethodConfig, MethodSpec
from adaptive_bench.runs.checks.trial import try_method


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


def in_place(view, keep):
    view.hidden.data = view.hidden.data  # no write
    (view.hidden.detach() if view.hidden.requires_grad else view.hidden).mul_(0.5)
    return Decision(keep=keep)


def with_state(value):
    def decision(view, keep):
        view.call.session.state["mine"] = value
        return Decision(keep=keep)

    return decision


def booked(kind, *about):
    def decision(view, keep):
        getattr(view.call, kind)(*about)
        return Decision(keep=keep)

    return decision


DECISIONS = {
    "booked for one of 2 layers, .* got layer 99 and int64": booked("book_norm", 99, torch.zeros(1, dtype=torch.long)),
    "booked for one of 2 layers, .* got layer -1 and ": booked("book_probe", -1, torch.zeros(1, dtype=torch.long)),
    "got layer 0 and NoneType": booked("book_cosine", 0, None),
    "counted by a whole number from 0 on, got -5": booked("note_rescale", -5),
    "keep is a boolean tensor .* got float32": lambda view, keep: Decision(keep=keep.float()),
    "keep is a boolean tensor .* on cpu, got bool .* on meta": lambda view, keep: Decision(keep=keep.to("meta")),
    r"shape \(2, 1\) \(rows, tokens\) on cpu, got bool .* on meta": lambda view, keep: Decision(
        keep=keep.to("meta") if view.call.phase == "decode" else keep
    ),
    "keep is a boolean tensor .*, sparse_coo": lambda view, keep: Decision(keep=keep.to_sparse()),
    "scale has floating-point numbers .* got int64": lambda view, keep: Decision(scale=column(keep, 1)),
    "input_scale has floating-point .* meta": lambda view, keep: Decision(input_scale=column(keep, 1.0).to("meta")),
    "a scale with NaN": lambda view, keep: Decision(keep=keep, scale=column(keep, math.nan)),
    "an? input_scale with NaN": lambda view, keep: Decision(keep=keep, input_scale=column(keep, math.inf)),
    "otherwise is a function .* got int": lambda view, keep: Decision(keep=keep, otherwise=5),
    "otherwise gives numbers of shape": lambda view, keep: Decision(keep=keep, otherwise=lambda tokens: view.hidden),
    "an otherwise with NaN": lambda view, keep: (
        Decision(keep, otherwise=lambda tokens: view.hidden[0, :1] * math.nan)
        if view.call.phase == "decode" and not bool(keep.any())
        else Decision(keep, otherwise=lambda tokens: view.hidden.flatten(0, 1)[tokens] * math.nan)
    ),
    "soft and nobody are True or False": lambda view, keep: Decision(keep=keep, nobody="no"),
    "nobody=True and keep=NoneType": lambda view, keep: Decision(nobody=True),
    "a keep with some that do": lambda view, keep: Decision(keep=keep, nobody=True),
    r"writes into view\.hidden": in_place,
    "under 'mine' from Odd": with_state(5),
    r"a tensor of shape \(1,\) under 'mine'": with_state(torch.zeros(1)),
}


def test_a_sound_method_passes(monkeypatch):
    def all_parts(view, keep):
        scale = column(keep, 0.5).masked_fill(~keep[..., None], math.nan)  # nobody reads those
        instead = None if view.call.training else lambda tokens: view.hidden.flatten(0, 1)[tokens] * 0.1
        return Decision(keep=keep, scale=scale if not view.call.training else None, otherwise=instead)

    assert tried(monkeypatch) is None
    assert tried(monkeypatch, decision=lambda self, view, keep: all_parts(view, keep)) is None


@pytest.mark.parametrize("said", DECISIONS)
def test_an_odd_decision_is_refused_with_the_method_and_the_rule(said, monkeypatch):
    decision = DECISIONS[said]
    found = tried(monkeypatch, decision=lambda self, view, keep: decision(view, keep))
    assert type(found) is PluginFault
    with pytest.raises(PluginFault, match=said):
        raise found
    assert "It happened in adaptive-bench" not in str(found)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1], "decide_ahead"),
        (torch.ones(3), "decide_ahead"),
        ([None] * 4, "decide_ahead"),
        ([Decision()] * 9, "decide_ahead"),
    ],
)
def test_answers_ahead_are_one_for_each_site(given, said, monkeypatch):
    found = tried(monkeypatch, decide_ahead=lambda self, call: given, decide=Method.decide)
    assert isinstance(found, PluginFault) and said in str(found) and "4 decisions" in str(found)


@pytest.mark.parametrize(
    "losses",
    [
        [1],
        {"mine": 0.5},
        {"mine": ("a", torch.tensor(1.0))},
        {"mine": (1.0, torch.ones(3))},
        {"mine": (1.0, 0.5)},
        {5: (1.0, torch.tensor(1.0))},
    ],
)
def test_losses_are_weights_and_numbers(losses, monkeypatch):
    found = tried(monkeypatch, losses=lambda self, call: losses)
    assert isinstance(found, PluginFault) and "losses of Odd" in str(found)


def test_a_loss_is_finite(monkeypatch):
    found = tried(monkeypatch, losses=lambda self, call: {"mine": (1.0, torch.tensor(math.nan))})
    assert "The loss of a first step of training is finite" in str(found) and "mine nan" in str(found)
    for weight in ("a", None, math.nan):
        found = tried(monkeypatch, main_loss_weight=lambda self, call, weight=weight: weight)
        assert isinstance(found, PluginFault) and "main_loss_weight of Odd" in str(found)


def test_what_goes_wrong_with_the_first_written_token_is_found(monkeypatch):
    def decision(self, view, keep):
        if view.call.phase == "decode":
            raise ValueError("only now")
        return Decision(keep=keep)

    assert "only now" in str(tried(monkeypatch, decision=decision))
