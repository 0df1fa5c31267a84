"""`compensate=scale`: what tokens get instead of a branch, in methods without a substitute of their own."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from adaptive_bench.model import AdaptiveModel

SKIPPERS = ("static_depth", "random_skip", "gateskip")
LENGTH, PROMPT = 14, 6


def _least_squares(pairs, real):
    """s of each pair of states [B, S, H] over the real tokens."""
    return [
        float(torch.linalg.lstsq(before[real].double().reshape(-1, 1), after[real].double().reshape(-1, 1)).solution)
        for before, after in pairs
    ]


@torch.no_grad()
def test_layers_are_fitted_on_what_enters_and_leaves_them(make_backbone, batch):
    """s_l = sum <h, h'> / sum <h, h> over real tokens, h' before the final norm, as the Hugging Face model has them."""
    backbone = make_backbone("llama")
    model, seen = AdaptiveModel.build(backbone, "static_depth[compensate=scale]").eval(), []
    model.calibrate([batch], [0.5])
    for layer in backbone.model.layers:
        layer.register_forward_hook(lambda _, given, out: seen.append((given[0], out)))
    backbone(batch["input_ids"], attention_mask=batch["attention_mask"])
    expected = _least_squares(seen, batch["attention_mask"].bool())
    assert model.method.fitted["scales"].tolist() == pytest.approx(expected, rel=1e-4)
    assert max(abs(scale - 1) for scale in expected) > 0.1


@torch.no_grad()
@pytest.mark.parametrize("spec", ["random_skip", "gateskip"])
def test_branches_are_fitted_apart(make_model, make_backbone, batch, spec):
    """Attention's output is what enters the MLP; a gate is part of its branch. T-DA4: padding and order do not
    matter.
    """
    model = make_model(f"{spec}[compensate=scale]", backbone=make_backbone("llama"))
    streams, real = [], batch["attention_mask"].bool()
    model.method.listeners.append(lambda view, _: streams.append(view.hidden))
    model.backbone_model.model.norm.register_forward_pre_hook(lambda _, given: streams.append(given[0]))
    model(batch["input_ids"], batch["attention_mask"])
    model.method.listeners.clear()
    expected = _least_squares(pairwise(streams), real)
    turned = {name: values.flip(0, 1) for name, values in batch.items()}
    turned["input_ids"] = batch["input_ids"].flip(0)
    for row, length in enumerate(real.flip(0).sum(dim=1).tolist()):
        turned["input_ids"][row] = turned["input_ids"][row].roll(LENGTH - length)
    turned["continuation_mask"] &= False
    for text in (batch, turned):
        model.calibrate([text], [0.3])
        assert model.method.fitted["scales"].tolist() == pytest.approx(expected, rel=1e-4)


class _Times(nn.Module):
    """A layer that multiplies its input."""

    def __init__(self, scale, like):
        super().__init__()
        self.scale, self.attention_type = scale, getattr(like, "attention_type", None)

    def forward(self, hidden, *_, **__):
        return hidden * self.scale


@torch.no_grad()
@pytest.mark.parametrize("executor", ["masked", "packed"])
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_layer_left_out_multiplies_by_its_scale(make_backbone, random_text, batch, family, executor):
    """T-DA1: a layer that doubles its input, h' = 2 h, is replaced by s = 2 exactly; so are others by theirs."""
    model = AdaptiveModel.build(make_backbone(family), "static_depth[compensate=scale]").eval()
    model.calibrate([batch], [0.5])
    layers = model.backbone.num_layers
    model.method.fitted.set(scales=torch.linspace(0.5, 2.0, layers, dtype=torch.float64))
    model.executor, model.dial = executor, 2
    ids = random_text(3, 12)
    logits = model(ids).logits
    hugging_face = make_backbone(family)
    for layer in model.method.skipped_layers():
        scale = float(model.method.fitted["scales"][layer])
        hugging_face.model.layers[layer] = _Times(scale, hugging_face.model.layers[layer])
    torch.testing.assert_close(logits, hugging_face(ids, use_cache=False).logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("spec", SKIPPERS)
def test_a_scale_of_one_is_plain_skipping(make_model, random_text, spec):
    """T-DA2."""
    plain, model = make_model(spec), make_model(f"{spec}[compensate=scale]")
    ids, share = random_text(3, 12), 0.3
    scaled = model.method.fitted["scales"]
    model.method.fitted.set(scales=torch.ones_like(scaled))
    if plain.method.thresholds is not None:
        model.method.thresholds.load(plain.method.thresholds.state())
    for one in (plain, model):
        one.dial = one.method.dial_for(share)
    expected = plain(ids).logits
    assert torch.equal(model(ids).logits, expected)
    model.method.fitted.set(scales=1.5 * scaled)
    assert not torch.allclose(model(ids).logits, expected, atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("executor", ["masked", "packed"])
@pytest.mark.parametrize("spec", SKIPPERS)
def test_scaling_costs_a_multiplication_for_each_number_of_a_token_that_skips(
    make_model, random_text, watch, spec, executor
):
    """H multiply-accumulates a site and token, for tokens that skip; the masked executor scales all, as waste."""
    model = make_model(f"{spec}[compensate=scale]")
    model.executor, model.dial = executor, model.method.dial_for(0.3)
    ids, mask = random_text(3, 12), torch.arange(12).expand(3, 12) >= torch.tensor([[0], [4], [0]])
    with watch(model) as watched:
        model(ids, mask.long())
    skipped = sum(int((mask & ~masks[0]).sum()) for masks in watched.keep.values())
    report, hidden = model.compute_report(), model.backbone.hidden_size
    assert skipped > 0 and report["macs"]["overhead.adapter"] == skipped * hidden
    assert report["counts"]["prefill"]["runs"]["rescale"] == skipped
    plain = make_model(spec)
    plain.executor, plain.dial = executor, model.dial
    if spec != "gateskip":  # whose scores see what was given instead
        plain(ids, mask.long())
        saved = [one.compute_report()["saved"] for one in (plain, model)]
        assert saved[0]["tokens"] == saved[1]["tokens"] and saved[0]["core"] == saved[1]["core"]
        assert saved[0]["net"] > saved[1]["net"]
    if executor == "masked":
        sites = sum(decisions[0].otherwise is not None for decisions in watched.decisions.values())
        assert sites and report["macs"]["waste.dense"] >= (sites * ids.numel() - skipped) * hidden
