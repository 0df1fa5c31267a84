"""GateSkip's ablation axes: each changes what it says, and nothing else."""

import pytest
import torch

from adaptive_bench.backbone import Site
from adaptive_bench.methods.gateskip import GateSkip

LAYERS = 4
LIVE_AT_INFERENCE = (
    *("shape=scalar", "sharing=shared", "architecture=mlp", "placement=before", "placement=both"),
    *("skip_unit=layer", "skip_modules=attention", "skip_modules=mlp", "stride=2", "input=residual"),
    *("kv=copy_below", "kv=evict", "compensate=scale"),
)
LIVE_IN_TRAINING = (
    *("loss=l1", "loss=kl_layer", "loss=kl_element", "sparsity_weight=0.1", "budget_end=0.5", "detach=false"),
    "frozen=true",
)


def _executed(model):
    sites = model.compute_report()["sites"]
    return {Site(site["layer"], site["branch"]): site["executed"] for site in sites}


def _gradients(model, training_batch):
    ids, mask, labels = training_batch
    model(ids, mask, labels=labels).loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def test_every_parameter_is_covered():
    """Each field is an axis that a test below moves."""
    moved = {axis.partition("=")[0] for axis in (*LIVE_AT_INFERENCE, *LIVE_IN_TRAINING)} | {"budget_start"}
    assert moved | {"rule"} == set(GateSkip.Config.model_fields)  # three of them: test_gateskip_rules.py


@torch.no_grad()
@pytest.mark.parametrize("semantics", ["", "@paper"])
@pytest.mark.parametrize("axis", LIVE_AT_INFERENCE)
def test_the_axis_changes_the_model(shared_model, random_text, axis, semantics):
    """No axis of the ablation table is inert: logits differ from the default's at the same saving of tokens."""
    ids, logits = random_text(4, 16), []
    for spec in ("gateskip", f"gateskip[{axis}]"):
        model = shared_model(spec + semantics)
        model.dial = model.method.dial_for(0.3)
        logits.append(model(ids).logits)
    assert float((logits[0] - logits[1]).abs().max()) > 1e-2


@pytest.mark.parametrize("axis", [*LIVE_IN_TRAINING, "budget_start=0.9"])
def test_the_axis_changes_training(trainee, training_batch, axis):
    """An axis that is about training changes some parameter's gradient."""
    step = 1 if axis.startswith("budget_start") else 10
    default, other = (
        _gradients(trainee(spec, step=step), training_batch) for spec in ("gateskip", f"gateskip[{axis}]")
    )
    assert default.keys() != other.keys() or any(
        not torch.allclose(default[name], other[name], atol=1e-7) for name in default
    )


@torch.no_grad()
@pytest.mark.parametrize("phase", ["training", "bench", "paper"])
def test_layer_by_attention(trainee, make_model, random_text, watch, phase):
    """T-GS12: attention and MLP of a layer have identical masks, in training and in both semantics."""
    spec = "gateskip[skip_unit=layer]" + ("@paper" if phase == "paper" else "")
    model = trainee(spec) if phase == "training" else make_model(spec)
    model.dial = model.method.dial_for(0.3)
    with watch(model) as watched:
        model(random_text(4, 16))
    for layer in range(LAYERS):
        attention, mlp = (watched.keep[Site(layer, branch)][0] for branch in ("attention", "mlp"))
        assert torch.equal(attention, mlp)
        assert 0 < float(attention.float().mean()) < 1


@torch.no_grad()
@pytest.mark.parametrize(
    ("axis", "skipping"),
    [
        ("skip_modules=attention", {Site(layer, "attention") for layer in range(4)}),
        ("skip_modules=mlp", {Site(layer, "mlp") for layer in range(4)}),
        ("stride=2", {Site(layer, branch) for layer in (1, 3) for branch in ("attention", "mlp")}),
        ("stride=4,skip_unit=layer", {Site(3, branch) for branch in ("attention", "mlp")}),
        ("stride=2,skip_modules=mlp", {Site(1, "mlp"), Site(3, "mlp")}),
    ],
)
def test_who_may_skip(shared_model, random_text, axis, skipping):
    """G15, G16: only these branches skip; the rest executes, still gated; the dial counts all branches."""
    model = shared_model(f"gateskip[{axis}]")
    share = len(skipping) / (2 * LAYERS)
    model.dial = model.method.dial_for(0.45 * share)
    assert model.dial == pytest.approx(0.55)
    assert model.method.max_saved_tokens == pytest.approx(0.95 * share)
    model(random_text(8, 24))
    executed = _executed(model)
    assert {site for site, value in executed.items() if value < 1} == skipping
    assert model.compute_report()["macs"]["overhead.decision"] == 2 * LAYERS * 8 * 24 * 32**2  # everybody is gated


@torch.no_grad()
@pytest.mark.parametrize(
    ("axis", "output", "inputs"),
    [
        ("placement=after", True, False),
        ("placement=before", False, True),
        ("placement=both", True, True),
        ("input=residual", True, False),
    ],
)
def test_placement(shared_model, random_text, watch, axis, output, inputs):
    """G14, G1: the gate multiplies the branch's output, its input alone, or both (released code of 'before'); it reads
    what the branch reads, or the residual stream as it is.
    """
    model = shared_model(f"gateskip[{axis}]")
    with watch(model) as watched:
        model(random_text(2, 8))
    site, layer = Site(0, "mlp"), model.backbone_model.model.layers[0]
    decision, hidden = watched.decisions[site][0], watched.hidden[site][0]
    assert (decision.scale is not None, decision.input_scale is not None) == (output, inputs)
    normed = layer.post_attention_layernorm(hidden)
    gate = torch.sigmoid(model.method.gates[1](hidden if axis == "input=residual" else normed))
    expected = layer.mlp(normed * gate if inputs else normed) * (gate if output else 1)
    after = watched.hidden[Site(1, "attention")][0]
    torch.testing.assert_close(after - hidden, expected, atol=1e-4, rtol=1e-4)
