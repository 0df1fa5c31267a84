"""FlexiDepth against its formulas: router, factors, adapter, penalty."""

import pytest
import torch
from torch.nn import functional

from adaptive_bench.backbone import Site
from adaptive_bench.method import Decision
from adaptive_bench.methods.flexidepth import Router

LAYERS, LENGTH, WIDTH, INNER, ADAPTER = 4, 12, 32, 2, 3
ROUTED = [2, 3]
HALF = 0.5


@pytest.fixture
def model(make_model, make_backbone):
    made = make_model("flexidepth", backbone=make_backbone("llama"))
    made.dial = HALF
    made.reset_ledger()
    return made


def test_the_routers_last_maps_fold_into_one_vector():
    """T-FD2: nothing stands between them, as a port that folds them relies on; the norm comes before the tanh."""
    torch.manual_seed(0)
    router, states = Router(64), torch.randn(9, 64)
    low = states @ router.down.weight.T
    normed = low / (low.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    folded = torch.tanh(normed) @ (router.out.weight @ router.up.weight)[0]
    torch.testing.assert_close(router(states)[:, 0], folded, atol=1e-6, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("executor", ["masked", "packed"])
def test_nothing_given_and_no_factors_are_layer_skipping(make_model, make_backbone, ids, watch, executor):
    """T-FD4: a zero adapter with factors of 1 skips layers with the mask, bit for bit."""
    model = make_model("flexidepth[factors=straight_through]", backbone=make_backbone("llama"))
    for adapter in model.method.adapters.values():
        adapter.down.weight.zero_()
    model.executor, model.dial = executor, HALF
    with watch(model) as watched:
        logits = model(ids).logits
    assert all(decision.scale is None for part in watched.decisions.values() for decision in part)
    plain = make_model("skiplayer", backbone=model.backbone_model)
    plain.executor = executor
    keep = {layer: watched.keep[Site(layer, "attention")][0] for layer in range(LAYERS)}
    assert all(torch.equal(keep[layer], watched.keep[Site(layer, "mlp")][0]) for layer in range(LAYERS))
    plain.method.decide = lambda view: Decision(keep[view.site.layer])
    assert torch.equal(logits, plain(ids).logits)
    assert all(0 < float(keep[layer].float().mean()) < 1 for layer in ROUTED)


@torch.no_grad()
def test_both_paths(model, ids, watch):
    """Run: attention, then g MLP; skip: (1 - g) adapter of what the MLP would have read."""
    with watch(model) as watched:
        model(ids)
    layer, name = ROUTED[0], str(ROUTED[0])
    before, after = watched.hidden[Site(layer, "attention")][0], watched.hidden[Site(layer + 1, "attention")][0]
    block = model.backbone_model.model.layers[layer]
    gate = torch.sigmoid(model.method.routers[name](block.input_layernorm(before)))
    keep = gate[..., 0] > HALF
    adapter = model.method.adapters[name]
    read = block.post_attention_layernorm(before)
    skipped = before + (1 - gate) * adapter.down(functional.silu(adapter.gate(read)) * adapter.up(read))
    torch.testing.assert_close(after[~keep], skipped[~keep], atol=1e-5, rtol=1e-5)
    attended = watched.hidden[Site(layer, "mlp")][0]
    assert torch.equal(attended[~keep], before[~keep]) and not torch.equal(attended[keep], before[keep])
    run = attended + gate * block.mlp(block.post_attention_layernorm(attended))
    torch.testing.assert_close(after[keep], run[keep], atol=1e-5, rtol=1e-5)
    assert 0 < float(keep.float().mean()) < 1


@torch.no_grad()
def test_all_run_is_not_the_base_model(make_model, make_backbone, ids):
    """Section 2: the gates scale the MLP also where nobody skips; without factors it is the base, bit for bit."""
    for spec, same in (("flexidepth", False), ("flexidepth[factors=straight_through]", True)):
        model = make_model(spec, backbone=make_backbone("llama"))
        model.dial = model.method.dial.skip_nothing
        assert torch.equal(model(ids).logits, model.backbone_model(ids).logits) == same
        assert model.compute_report()["saved"]["tokens"] == 0.0


def test_penalty_of_a_call(trainee, training_batch, watch):
    """alpha mean_t (sum_l g)^2 of real tokens; in training a token runs above one half, whatever the dial."""
    model = trainee("flexidepth[alpha=0.01]")
    model.dial = 1.0
    ids, mask, labels = training_batch
    with torch.no_grad(), watch(model) as watched:
        loss = float(model(ids, mask, labels=labels).loss)
    gates = torch.stack([watched.decisions[Site(layer, "mlp")][0].scale[..., 0] for layer in ROUTED])
    keep = torch.stack([watched.keep[Site(layer, "mlp")][0] for layer in ROUTED])
    assert torch.equal(keep[:, mask], (gates > HALF)[:, mask])
    assert model.loss_terms["layers_used"] == pytest.approx(float(gates.sum(0)[mask].square().mean()), rel=1e-5)
    assert loss == pytest.approx(model.loss_terms["ce"] + 0.01 * model.loss_terms["layers_used"], rel=1e-5)
