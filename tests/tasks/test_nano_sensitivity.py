"""Tokens that pass by a branch, in training or in evaluation, and what predictions lose by it."""

from __future__ import annotations

import pytest
import torch
from nano_sensitivity import add_branch_dropout, branch_divergences, branches, dominance, pass_by
from transformers import LlamaConfig, LlamaForCausalLM

_ROWS = [[1, 5, 9, 3, 7, 2, 11, 6, 12, 3, 8, 10], [1, 4, 8, 13, 2]]


@pytest.fixture
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


def _without(model: LlamaForCausalLM, name: str) -> None:
    branch = dict(branches(model))[name]
    last = branch.o_proj if "attention" in name else branch.down_proj
    torch.nn.init.zeros_(last.weight)


def test_a_share_of_the_tokens_passes_by() -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\)"):
        pass_by(torch.nn.Identity(), 1.0, torch.Generator(), training=True)
    branch = torch.nn.Identity().eval()
    pass_by(branch, 0.36, torch.Generator().manual_seed(1), training=False)
    output = branch(torch.ones(50, 60, 4))
    assert set(output.sum(dim=-1).unique().tolist()) == {0.0, 4.0}  # whole tokens, and none is scaled
    assert output.mean().item() == pytest.approx(1 - 0.36, abs=0.03)


def test_dropout_acts_in_training_alone_and_again_the_same(model: LlamaForCausalLM) -> None:
    ids = torch.tensor(_ROWS[:1])
    untouched = model(input_ids=ids).logits
    add_branch_dropout(model, 0.5, seed=1)
    assert torch.equal(model(input_ids=ids).logits, untouched)
    first, second = (model.train()(input_ids=ids).logits for _ in range(2))
    assert not torch.equal(first, second)
    assert not torch.equal(first, untouched)


@pytest.mark.parametrize("idle", ["1 attention", "2 mlp"])
def test_a_branch_that_adds_nothing_is_worth_nothing(model: LlamaForCausalLM, idle: str) -> None:
    _without(model, idle)
    found = branch_divergences(model, _ROWS, [1, 1])
    assert list(found) == [name for name, _ in branches(model)]
    assert found.pop(idle) == pytest.approx(0, abs=1e-7)
    assert all(value > 1e-6 for value in found.values())


def test_the_one_branch_that_does_everything_dominates(model: LlamaForCausalLM) -> None:
    balanced = dominance(branch_divergences(model, _ROWS, [1, 1]))
    dict(branches(model))["0 mlp"].down_proj.weight.data *= 300
    assert dominance(branch_divergences(model, _ROWS, [1, 1])) > 10 > balanced


def test_only_the_asked_tokens_count_and_padding_does_not(model: LlamaForCausalLM) -> None:
    everybody = 1 - 1e-9  # without chance, so that rows can be compared alone and in a batch
    first = branch_divergences(model, _ROWS[:1], [4], everybody)
    second = branch_divergences(model, _ROWS[1:], [1], everybody)
    both = branch_divergences(model, _ROWS, [4, 1], everybody)
    counted = (len(_ROWS[0]) - 4, len(_ROWS[1]) - 1)
    for name, divergence in both.items():
        mean = (counted[0] * first[name] + counted[1] * second[name]) / sum(counted)
        assert divergence == pytest.approx(mean, rel=1e-4)
