"""Gradient checkpointing changes memory, not gradients."""

import pytest
import torch

SPECS = ["dense", "gateskip", "gateskip@paper", "mod", "calm", "free", "layerskip", "random_skip[trained=true]"]


def gradients(model, batch):
    """Gradient by parameter, and what autograd held for it in bytes."""
    ids, mask, labels = batch
    held = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: held.append(t.numel()) or t, lambda t: t):
        loss = model(ids, attention_mask=mask, labels=labels, return_logits=False).loss
    loss.backward()
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}, sum(held)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("spec", SPECS)
def test_gradients_are_equal_bit_for_bit_and_less_is_held(spec, family, trainee, training_batch):
    model = trainee(spec, family)
    plain, held = gradients(model, training_batch)
    model.zero_grad()
    model.gradient_checkpointing = True
    again, held_again = gradients(model, training_batch)
    assert plain and plain.keys() == again.keys()
    for name, gradient in plain.items():
        assert torch.equal(gradient, again[name]), name
    assert held_again < 0.9 * held
