"""SkipLayer against its formulas: hard routing, straight-through gradient, density loss."""

import pytest
import torch

from adaptive_bench.backbone import Site
from adaptive_bench.method import document_key
from adaptive_bench.methods.skiplayer import SkipLayerConfig, middle_layers

LAYERS, LENGTH = 4, 12


@torch.no_grad()
@pytest.mark.parametrize("executor", ["masked", "packed"])
def test_skipped_tokens_pass_and_executed_ones_get_the_dense_block(shared_model, ids, watch, executor):
    """T-SL1, T-SL2: a skipped token is unchanged bit for bit; an executed one gets the block's output, unscaled."""
    model = shared_model("skiplayer")
    model.executor, model.dial = executor, model.method.dial_for(0.45)
    with watch(model) as watched:
        model(ids)
    decoder = model.backbone_model.model
    for layer in range(LAYERS - 1):
        before, after = (watched.hidden[Site(number, "layer")][0] for number in (layer, layer + 1))
        keep = watched.keep[Site(layer, "layer")][0]
        assert torch.equal(after[~keep], before[~keep])
        rotary = decoder.rotary_emb(before, torch.arange(LENGTH)[None])
        dense = decoder.layers[layer](before, position_embeddings=rotary, attention_mask=None)
        torch.testing.assert_close(after[keep], dense[keep], atol=1e-5, rtol=1e-5)
    shares = [float(masks[0].float().mean()) for masks in watched.keep.values()]
    assert any(0 < share < 1 for share in shares)


def test_density_loss_of_a_call(trainee, training_batch, watch):
    """T-SL3: executed shares of real tokens against a target that falls from 1 to the density; summed over layers."""
    model = trainee("skiplayer[density=0.6,density_weight=0.1]", step=8, total_steps=21)
    ids, mask, labels = training_batch
    with torch.no_grad(), watch(model) as watched:
        loss = float(model(ids, mask, labels=labels).loss)
    shares = torch.stack([decisions[0].scale[..., 0][mask].mean() for decisions in watched.decisions.values()])
    assert set(torch.cat([d[0].scale.flatten() for d in watched.decisions.values()]).tolist()) == {0.0, 1.0}
    density = float((shares - 0.8).square().sum())  # half of the way from 1 to 0.6
    assert density > 0.001
    assert model.loss_terms["density"] == pytest.approx(density, rel=1e-4)
    assert loss == pytest.approx(model.loss_terms["ce"] + 0.1 * density, rel=1e-5)


def test_training_samples_and_evaluation_does_not(trainee, training_batch):
    """T-SL5: noise changes with the training step; in evaluation there is none, whatever the step and the seed."""
    ids, mask, _ = training_batch
    outputs = []
    for step in (1, 2):
        model = trainee("skiplayer", step=step)
        with torch.no_grad():
            sampled = model(ids, mask).logits
            again = model(ids, mask).logits
            assert torch.equal(sampled, again)
            model.eval()
            model.dial, model.method.seed = 0.0, step
            outputs.append((sampled, model(ids, mask).logits))
    assert not torch.equal(outputs[0][0], outputs[1][0])
    assert torch.equal(outputs[0][1], outputs[1][1])


@torch.no_grad()
def test_examples_of_one_beginning_are_sampled_apart(trainee, random_text, watch):
    """T-SL5: noise is drawn for each token of each example, also where examples share a template."""
    model, ids = trainee("skiplayer"), random_text(1, 24).expand(8, -1)
    documents = torch.tensor([document_key("example", number) for number in range(8)])
    with watch(model) as watched:
        model(ids, documents=documents)
        model(ids, documents=documents.flip(0))
    first, flipped = (decision.scale[..., 0] for decision in watched.decisions[Site(0, "layer")])
    assert torch.equal(first, flipped.flip(0))
    assert not torch.equal(first, first[:1].expand_as(first))


@torch.no_grad()
def test_evaluation_takes_the_larger_logit(shared_model, ids, watch):
    """Section 10.4: at offset 0 a token executes where the execute logit exceeds the skip logit."""
    model = shared_model("skiplayer")
    model.dial = 0.0
    with watch(model) as watched:
        model(ids)
    for layer, router in enumerate(model.method.routers):
        site = Site(layer, "layer")
        logits = router(model.backbone_model.model.layers[layer].input_layernorm(watched.hidden[site][0]))
        assert torch.equal(watched.keep[site][0], logits.argmax(-1) == 1)


def test_layer_routes_start_closes_the_nine_middle_layers_of_24():
    """T-LR2: before the first 8 and the last 7 lean towards execute; the same shares of other depths."""
    biases = SkipLayerConfig(start="middle_closed").start_biases(24)
    assert [layer for layer, bias in enumerate(biases) if bias < 0] == list(range(8, 17))
    assert float(torch.tensor(biases).sigmoid().max()) == pytest.approx(0.731, abs=5e-4)
    assert float(torch.tensor(biases).sigmoid().min()) == pytest.approx(0.269, abs=5e-4)
    assert list(middle_layers(6)) == [2, 3] and list(middle_layers(1)) == [0]


@torch.no_grad()
def test_the_first_step_skips_the_middle_layers_alone(make_model, ids, watch):
    """T-LR2: with zero router weights all tokens skip exactly the layers that start closed."""
    model = make_model("skiplayer[start=middle_closed]").eval()
    for router in model.method.routers:
        router.weight.zero_()
    model.dial = 0.0  # the routers' own choice
    with watch(model) as watched:
        model(ids)
    closed = middle_layers(LAYERS)
    assert 0 < len(closed) < LAYERS
    for layer in range(LAYERS):
        assert watched.keep[Site(layer, "layer")][0].any().item() is (layer not in closed)
