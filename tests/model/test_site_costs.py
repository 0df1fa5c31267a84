"""What every site costs: measured one by one, and what is spared because of it."""

import pytest
import torch
from torch.nn import functional

from adaptive_bench.backbone import Site
from adaptive_bench.errors import UsageError
from adaptive_bench.method import every_branch
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.interventions import FACTOR, SHARE, SiteCosts, site_costs


def text(ids, padded=0):
    mask = torch.ones_like(ids)
    mask[0, len(mask[0]) - padded :] = 0
    return {"input_ids": ids, "attention_mask": mask, "continuation_mask": torch.zeros_like(ids, dtype=torch.bool)}


def quiet_backbone(make_backbone):
    """A model whose branches add little, but for the MLP of layer 0 and the attention of layer 2."""
    model = make_backbone("llama")
    with torch.no_grad():
        for layer, block in enumerate(model.model.layers):
            block.mlp.down_proj.weight.mul_(3.0 if layer == 0 else 0.05)
            block.self_attn.o_proj.weight.mul_(3.0 if layer == 2 else 0.05 if layer else 0.005)
    return model


def test_a_site_that_carries_the_model_is_found(make_backbone, random_text):
    found = site_costs(quiet_backbone(make_backbone), [text(random_text(4, 30), 6), text(random_text(2, 12, 5))])
    assert found.costs.keys() == every_branch(range(4)) and found.tokens == 4 * 30 - 6 + 2 * 12
    assert found.spared == {Site(0, "mlp"), Site(2, "attention")}
    assert min(found.costs[site] for site in found.spared) > FACTOR * found.median > 0
    assert not found.keep_first
    assert found.described().startswith("6 of 8 sites; spared: ")
    assert f"MLP of layer 0 ({found.costs[Site(0, 'mlp')] / found.median:.0f}x the median)" in found.described()
    assert SiteCosts.from_json(found.to_json()) == found


@torch.no_grad()
def test_costs_are_those_of_the_plain_model_with_a_hook(make_backbone, random_text):
    """transformers' own forward pass, in which a hook takes what the branch adds from the tokens that skip."""
    model, ids = quiet_backbone(make_backbone), random_text(3, 20)
    found = site_costs(model, [text(ids)], seed=7)
    keep = torch.rand(ids.shape, generator=torch.Generator().manual_seed(7)) >= SHARE
    keep[:, 0] = True
    full = model(ids).logits.log_softmax(dim=-1)
    for site in every_branch(range(4)):
        block = model.model.layers[site.layer]

        def skip(module, given, output):
            if isinstance(output, tuple):
                return (output[0] * keep[..., None], *output[1:])
            return output * keep[..., None]

        hook = (block.mlp if site.branch == "mlp" else block.self_attn).register_forward_hook(skip)
        other = model(ids).logits.log_softmax(dim=-1)
        hook.remove()
        kl = functional.kl_div(other, full, reduction="none", log_target=True).sum(dim=-1).mean()
        assert found.costs[site] == pytest.approx(float(kl), rel=1e-3, abs=1e-6)


def test_a_massive_first_token_is_kept(make_backbone, random_text):
    """A token that begins every text and is 40 times as long as the others, as BOS of a real Llama is."""
    model, ids = make_backbone("llama"), random_text(4, 16)
    ids[:, 0] = 1
    with torch.no_grad():
        model.model.embed_tokens.weight[1] *= 40 * model.model.embed_tokens.weight.norm(dim=-1).median()
    assert site_costs(model, [text(ids)]).keep_first
    model.model.embed_tokens.weight.data[1] = model.model.embed_tokens.weight.data[5]
    assert not site_costs(model, [text(ids)]).keep_first


def test_nothing_is_spared_where_the_median_is_nothing():
    costs = dict.fromkeys(every_branch(range(4)), 0.0) | {Site(0, "mlp"): 1.0}
    assert not SiteCosts(costs, 1.0, 10).spared


def test_measuring_needs_text_and_leaves_the_model_alone(make_backbone, random_text):
    model = make_backbone("llama")
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(UsageError, match="got 0 batches where one is needed"):
        site_costs(model, [])
    site_costs(model, [text(random_text(2, 8))])
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    assert not any(parameter.grad is not None for parameter in model.parameters())


STORIES = (
    "The lighthouse keeper had not spoken to anyone for eleven days when the mail boat finally came around the point. "
    "He walked down to the landing with his hands in his pockets and watched the crew throw the ropes. There were two "
    "sacks of letters, a crate of oranges, and a small dog that nobody had ordered.",
    "To bake a simple loaf, mix flour, water, salt and yeast in a bowl until no dry flour is left. Cover it and let it "
    "rest overnight. In the morning, heat the oven with a heavy pot inside, shape the dough into a ball, and bake it "
    "for thirty minutes with the lid on and fifteen with the lid off.",
)


@pytest.mark.real
@torch.no_grad()
def test_what_smollm2_cannot_do_without(smollm2):
    """MLP of layer 0 and attention of layer 1 lead by far; sparing what is found, random skipping keeps much more."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()
    read = AutoTokenizer.from_pretrained(smollm2)(STORIES, return_tensors="pt", padding=True, padding_side="right")
    batch = {**read, "continuation_mask": torch.zeros_like(read.input_ids, dtype=torch.bool)}
    found = site_costs(model, [batch])
    surely = {Site(0, "mlp"), Site(1, "attention")}
    assert surely <= found.spared <= surely | {Site(0, "attention"), Site(28, "mlp"), Site(29, "mlp")}
    assert found.costs[Site(0, "mlp")] > 50 * found.median and found.keep_first
    losses = []
    for how in ({}, {"spared": found.spared, "keep_first": True}):
        skipping = AdaptiveModel.build(model, "random_skip", **how).eval()
        skipping.saving = 0.15
        labels = read.input_ids.masked_fill(read.attention_mask == 0, -100)
        losses.append(float(skipping(**batch, labels=labels).loss))
    assert losses[1] < losses[0] - 1.5
