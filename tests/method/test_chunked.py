"""Cross entropies whose logits live for some tokens at a time: loss, gradient and count of the plain ones."""

import pytest
import torch
from torch.nn import functional

from adaptive_bench.method import call as call_module
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.training.cost import FlopCount


def step(model, ids, labels):
    model.zero_grad()
    model.begin_step(3, 4)
    count = FlopCount(model, model.backbone)
    loss = model(ids, labels=labels, return_logits=False).loss
    loss.backward()
    count.close()
    gradients = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    return loss.item(), gradients, count


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("spec", ["dense", "calm", "layerskip", "free", "router_tuned_mod"])
def test_it_is_what_whole_tables_give(spec, family, make_backbone, random_text, monkeypatch):
    model = AdaptiveModel.build(make_backbone(family, "eager"), spec)
    ids = random_text(2, 12)
    labels = ids.masked_fill(torch.arange(12) < 5, -100)
    plain, gradients, count = step(model, ids, labels)
    monkeypatch.setattr(call_module, "LARGE", 0)
    monkeypatch.setattr(call_module, "_AT_ONCE", 3 * model.backbone.vocab_size)
    loss, found, counted = step(model, ids, labels)
    assert loss == pytest.approx(plain, rel=1e-6)
    assert counted.macs == count.macs
    assert found.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)


def test_states_and_weights_get_what_the_formula_gives(make_backbone):
    backbone = AdaptiveModel.build(make_backbone("llama"), "dense").backbone
    states = [torch.randn(7, backbone.hidden_size, requires_grad=True) for _ in range(2)]
    targets = torch.arange(7)
    loss = call_module.chunked_cross_entropies(backbone, states, [0.25, 0.75], targets)
    found = torch.autograd.grad(2 * loss, [*states, backbone.model.lm_head.weight])
    plain = sum(
        weight * functional.cross_entropy(backbone.model.lm_head(backbone.decoder.norm(state)), targets)
        for weight, state in zip([0.25, 0.75], states, strict=True)
    )
    torch.testing.assert_close(loss, plain)
    expected = torch.autograd.grad(2 * plain, [*states, backbone.model.lm_head.weight])
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        assert not call_module.chunked_cross_entropies(backbone, states, [0.25, 0.75], targets).requires_grad
