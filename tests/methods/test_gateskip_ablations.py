"""GateSkip's ablation axes: each changes what it says, and nothing else."""

import pytest
import torch

from adaptive_bench.backbone import Site

LAYERS = 4


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
    sites = model.compute_report()["sites"]
    assert {Site(one["layer"], one["branch"]) for one in sites if one["executed"] < 1} == skipping
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
