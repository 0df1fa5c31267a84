"""SkipGPT against its formulas: routers per branch, what they read, one penalty for all of them."""

import pytest
import torch

from adaptive_bench.backbone import Site
from adaptive_bench.methods.branch_routers import EXECUTE, SKIP, temperature

LAYERS, LENGTH = 4, 12


@pytest.mark.parametrize(("micro_step", "wanted"), [(1, 5.0), (9, 4.9996), (40_001, 3.0), (80_000, 1.0004)])
def test_temperature(micro_step, wanted):
    """T-SP2: from 5 to 1 over 10 000 optimizer steps of 8 micro-steps."""
    assert temperature((micro_step - 1) // 8 + 1, 10_000) == pytest.approx(wanted)


@torch.no_grad()
@pytest.mark.parametrize(("spec", "moves"), [("skipgpt", False), ("skipgpt[mlp_reads=branch_input]", True)])
def test_what_the_router_of_an_mlp_reads(make_model, make_backbone, ids, watch, spec, moves):
    """T-SP3: what attention adds is no matter to the MLP's decision in the same layer, unless it reads it."""
    found = []
    for factor in (1.0, -3.0):
        model = make_model(spec, backbone=make_backbone("llama"))
        model.backbone_model.model.layers[0].self_attn.o_proj.weight.mul_(factor)
        model.dial = 0.0
        for number, bias in ((0, 50.0), (1, 0.0)):  # everybody attends; the MLP's router says who goes on
            model.method.routers[number].bias.copy_(torch.tensor([bias, 0.0]))
        with watch(model) as watched:
            model(ids)
        found.append(watched.keep[Site(0, "mlp")][0])
    assert 0 < float(found[0].float().mean()) < 1
    assert torch.equal(*found) != moves


def test_penalty_of_a_call(trainee, training_batch, watch):
    """The mean over all branches against a target that falls from 1 to 1 - s; skipped tokens get nothing."""
    model = trainee("skipgpt[sparsity=0.4,penalty_weight=20]", step=8, total_steps=21)
    ids, mask, labels = training_batch
    with torch.no_grad(), watch(model) as watched:
        loss = float(model(ids, mask, labels=labels).loss)
    scales = [decisions[0].scale[..., 0] for decisions in watched.decisions.values()]
    assert set(torch.cat([scale.flatten() for scale in scales]).tolist()) == {0.0, 1.0}
    executed = torch.stack([scale[mask].mean() for scale in scales]).mean()
    assert model.loss_terms["target"] == pytest.approx(abs(0.8 - float(executed)), abs=1e-6)  # half of the way to 0.6
    assert loss == pytest.approx(model.loss_terms["ce"] + 20 * model.loss_terms["target"], rel=1e-5)


@torch.no_grad()
def test_evaluation_takes_the_larger_logit(shared_model, ids, watch):
    """At offset 0 a branch runs where the execute logit is not below the other; nothing is sampled."""
    model = shared_model("skipgpt")
    model.dial = 0.0
    with watch(model) as watched:
        model(ids)
    for number, router in enumerate(model.method.routers):
        site = Site(number // 2, ("attention", "mlp")[number % 2])
        layer_input = watched.hidden[Site(number // 2, "attention")][0]
        logits = router(layer_input / layer_input.square().mean(dim=-1, keepdim=True).add(1e-6).sqrt())
        assert torch.equal(watched.keep[site][0], logits[..., EXECUTE] >= logits[..., SKIP])
