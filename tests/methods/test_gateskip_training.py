"""GateSkip's training: schedule, skipping, penalty, gradients."""

import pytest
import torch

from adaptive_bench.methods.gateskip import sparsity


def test_training_drops_an_exact_share(trainee, training_batch):
    """G17, G21, X9: at every branch floor(q n) of the batch's n prompt tokens and of its answer tokens, whatever the
    dial says; nothing at step 1.
    """
    model = trainee("gateskip")
    ids, mask, labels = training_batch
    model.dial = 0.05
    kept = []
    model.method.listeners.append(lambda view, decision: kept.append(decision))
    continuation = labels != -100
    phases = [mask.bool() & ~continuation, mask.bool() & continuation]
    for step, share in ((1, 0.0), (8, 0.1), (15, 0.2), (21, 0.2)):
        model.begin_step(step, 21)
        kept.clear()
        model(ids, mask, labels=labels, continuation_mask=continuation)
        expected = [int(share * int(phase.sum()) + 1e-9) for phase in phases]
        assert [[int((phase & ~decision.keep).sum()) for phase in phases] for decision in kept] == [expected] * 8


@pytest.mark.parametrize(("loss", "value"), [("l2", 0.25), ("l1", 0.5), ("kl_layer", 0.0), ("kl_element", 0.0)])
def test_penalty_by_hand(loss, value):
    """T-GS8, golden: a constant gate of 0.5 gives 0.25 (mean square), 0.5 (mean), 0 (either KL at target 0.5)."""
    assert sparsity(torch.full((3, 4), 0.5), loss, 0.5).item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(("loss", "weight"), [("l1", 0.1), ("l2", 1.0), ("kl_layer", 0.1), ("kl_element", 1.0)])
def test_penalty_and_weight_are_a_pair(loss, weight, trainee, training_batch):
    """Section 3.3: lambda 0.1 belongs to the paper's forms, 1.0 to the released code's; one that is given wins."""
    ids, mask, labels = training_batch
    for spec, wanted in ((f"gateskip[loss={loss}]", weight), (f"gateskip[loss={loss},sparsity_weight=0.3]", 0.3)):
        model = trainee(spec, step=5)
        total = model(ids, mask, labels=labels).loss.item()
        terms = model.loss_terms
        assert total - terms["ce"] == pytest.approx(wanted * terms["sparsity"], abs=1e-5)


def test_kl_forms_differ():
    """Section 3.4: the element-wise KL also punishes variance around the right mean; the paper's does not."""
    gate = torch.tensor([[0.2, 0.8], [0.3, 0.7]])
    assert sparsity(gate, "kl_layer", 0.5).item() == pytest.approx(0.0, abs=1e-6)
    assert sparsity(gate, "kl_element", 0.5).item() > 0.1


@pytest.mark.parametrize(("detach", "reaches"), [("true", False), ("false", True)])
def test_gradient_through_the_gate_input(detach, reaches, trainee, training_batch):
    """T-GS9: with detach the penalty trains the gates only; without it the backbone feels it."""
    model = trainee(f"gateskip[detach={detach}]")
    ids, mask, labels = training_batch
    total = model(ids, mask, labels=labels).loss
    # the penalty alone: what is left of the loss without its cross entropy
    plain = trainee(f"gateskip[detach={detach},sparsity_weight=0]")(ids, mask, labels=labels).loss
    assert total.item() - plain.item() == pytest.approx(model.loss_terms["sparsity"], abs=1e-5)
    call = {}
    losses = model.method.losses
    model.method.losses = lambda passed: call.setdefault("terms", losses(passed))
    model(ids, mask, labels=labels)
    model.zero_grad()
    call["terms"]["sparsity"][1].backward()
    assert all(gate.weight.grad.abs().max() > 0 for gate in model.method.gates)
    touched = [
        parameter
        for parameter in model.backbone_model.parameters()
        if parameter.grad is not None and parameter.grad.any()
    ]
    assert bool(touched) == reaches


def test_skipped_tokens_keep_their_kv_in_training(trainee, training_batch):
    """G18: training skips by identity only; K,V stay, whatever the KV policy at inference will be."""
    ids, mask, _ = training_batch
    with torch.no_grad():
        logits = [trainee(f"gateskip[kv={kv}]")(ids, mask).logits for kv in ("recompute", "copy_below", "evict")]
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])
