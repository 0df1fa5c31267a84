"""GateSkip's training step was made cheaper without changing a bit of it."""

import pytest
import torch

from adaptive_bench.methods.gateskip import sparsity


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("loss", ["l2", "l1", "kl_layer", "kl_element"])
def test_penalty_and_its_gradient_are_those_of_the_masked_gates(padded, loss, trainee, training_batch):
    ids, mask, labels = training_batch
    mask = mask if padded else torch.ones_like(mask)
    model = trainee(f"gateskip[loss={loss}]")
    gates = []
    model.method.listeners.append(lambda view, decision: gates.append((view.call, decision.scale)))
    model(ids, mask, labels=labels)
    call = gates[0][0]
    weight = list(model.method.parameters())
    (_, ours) = model.method.losses(call)["sparsity"]
    budget = 1.0 - model.method.skip_share
    plain = torch.stack([sparsity(gate[call.valid], loss, budget) for _, gate in gates]).mean()
    assert torch.equal(ours, plain)
    for one, other in zip(
        torch.autograd.grad(ours, weight, retain_graph=True), torch.autograd.grad(plain, weight), strict=True
    ):
        assert torch.equal(one, other)
