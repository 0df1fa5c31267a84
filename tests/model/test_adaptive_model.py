"""Building an `AdaptiveModel`, turning its dial, and what it refuses."""

import json
import math

import pytest
import torch

from adaptive_bench.errors import UsageError
from adaptive_bench.method import Decision
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens

SPECS = ["dense", "random_skip", "gateskip", "mod"]


@pytest.mark.parametrize("spec", SPECS)
def test_dial_stays_in_range(spec, shared_model):
    """Issue 2, item 8: a value out of range is refused with the range, and the dial stays as it was."""
    model = shared_model(spec)
    dial = model.method.dial
    for value in (dial.minimum - 0.01, dial.maximum + 0.01, math.nan, math.inf):
        with pytest.raises(UsageError, match=rf"{dial.name}.*got {value!r}"):
            model.dial = value
    assert model.dial == dial.skip_nothing
    for value in (dial.minimum, dial.maximum):
        model.dial = value
        assert model.dial == value


def test_largest_saving(shared_model):
    """MoD routes half of the blocks: it cannot skip more than their share."""
    largest = {spec: shared_model(spec).method.max_saved_tokens for spec in SPECS}
    assert largest == pytest.approx({"dense": 0.0, "random_skip": 1.0, "gateskip": 0.95, "mod": 0.475})


def test_executor(shared_model):
    """`masked` to train, `packed` to evaluate, unless set."""
    model = shared_model("dense")
    assert model.executor == "packed" and model.train().executor == "masked"
    model.executor = "packed"
    assert model.executor == "packed"
    with pytest.raises(UsageError, match="turbo"):
        model.executor = "turbo"
    model.executor = None
    assert model.eval().executor == "packed"


@pytest.mark.parametrize("default", [torch.float64, torch.float16])
@pytest.mark.parametrize("spec", ["gateskip", "flexidepth", "d_llm"])
def test_what_a_method_adds_is_fp32_whatever_new_tensors_are(spec, default, make_backbone):
    backbone = make_backbone("llama")
    torch.set_default_dtype(default)
    try:
        model = AdaptiveModel.build(backbone, spec).eval()
        assert torch.get_default_dtype() == default
        assert model(torch.tensor([[1, 2, 3]])).logits.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    assert {parameter.dtype for parameter in model.method.parameters()} == {torch.float32}


@pytest.mark.parametrize("spec", ["gateskip", "gateskip[shape=scalar,sharing=shared]", "mod"])
def test_seed_decides_new_parameters_alone(spec, shared_backbone):
    """X12: same seed, same parameters, whatever was drawn before; the global generator is left alone."""
    state = torch.get_rng_state()
    one = AdaptiveModel.build(shared_backbone("llama"), spec, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    same, other = (AdaptiveModel.build(shared_backbone("llama"), spec, seed=seed) for seed in (1, 2))
    for ours, again in zip(one.method.parameters(), same.method.parameters(), strict=True):
        assert torch.equal(ours, again)
    assert any(
        not torch.equal(ours, theirs)
        for ours, theirs in zip(one.method.parameters(), other.method.parameters(), strict=True)
    )


def test_something_trains(make_model):
    model = make_model("dense").requires_grad_(False)
    with pytest.raises(
        UsageError, match="A training needs trainable parameters, got a dense with all parameters frozen"
    ):
        model.parameter_groups(1e-3)


def test_input_scales_belong_to_branches(make_model, random_text, monkeypatch):
    """A whole layer has no input of its own to scale: said, not ignored."""
    model = make_model("mod")
    monkeypatch.setattr(model.method, "decide", lambda view: Decision(input_scale=torch.ones(1, 4, 1)))
    with pytest.raises(UsageError, match=r"input_scale.*layer 0.*MixtureOfDepths"):
        model(random_text(1, 4))


@torch.no_grad()
def test_a_report_is_of_what_ran_since_the_dial_was_set(shared_model, random_text):
    """Issue 49, item 3: a loop over dial values reports the share of layers left out at each, not the mean of all so
    far; the calls at one value count together.
    """
    model, ids = shared_model("static_depth"), random_text(2, 9)
    layers = model.backbone.num_layers
    for count in range(layers):
        model.saving = count / layers
        new_tokens(model, ids, max_new_tokens=4)
        assert model.compute_report()["saved"]["tokens"] == pytest.approx(count / layers)
    calls, tokens = (model.compute_report()["counts"]["prefill"][name] for name in ("calls", "tokens"))
    assert (calls, tokens) == (1, 18)
    new_tokens(model, ids, max_new_tokens=4)
    assert model.compute_report()["counts"]["prefill"]["tokens"] == 36
    model.dial = model.dial
    assert model.compute_report()["saved"]["tokens"] is None


@torch.no_grad()
def test_a_report_prints_as_a_page(make_model, make_backbone, random_text):
    """Issue 49, item 3: some ten lines, with all that is in it still there to be read as a dictionary."""
    model = make_model("static_depth", backbone=make_backbone("llama", num_hidden_layers=32)).eval()
    assert "-" in str(model.compute_report())
    model.saving = 0.25
    model(random_text(2, 9))
    report = model.compute_report()
    lines = str(report).splitlines()
    assert len(lines) <= 12 and max(map(len, lines)) <= 120
    assert "25.0%" in lines[1] and "18 tokens, 1 calls" in lines[1]
    assert report == json.loads(json.dumps(report)) and len(report["sites"]) == 64
