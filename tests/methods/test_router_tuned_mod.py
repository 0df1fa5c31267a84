"""Router-tuned Mixture-of-Depths: what trains, the straight-through mask, the regulariser, granularity."""

import pytest
import torch

from adaptive_bench.backbone import Site

ROUTED = [1, 2]


def _set_bias(model, bias):
    with torch.no_grad():
        for router in model.method.routers.values():
            router.weight.zero_()
            router.bias.fill_(bias)


@torch.no_grad()
@pytest.mark.parametrize("spec", ["router_tuned_mod", "router_tuned_mod@paper"])
def test_all_ones_are_the_base_model(make_model, make_backbone, random_text, spec):
    """T-RT2: when everybody executes, training and evaluation give the base model's logits, bit for bit."""
    model, ids = make_model(spec, backbone=make_backbone("llama")), random_text(3, 11)
    model.dial = model.method.dial.skip_nothing
    assert torch.equal(model(ids).logits, model.backbone_model(ids).logits)
    _set_bias(model, 0.3)  # a sigmoid of 0.57: above a half, but no round number
    model.train()
    assert torch.equal(model(ids).logits, model.backbone_model(ids).logits)


def test_straight_through(trainee, training_batch, watch):
    """T-RT3: forward the mask is hard; backward d(out)/d(s) is the attention's update."""
    model = trainee("router_tuned_mod")
    ids, mask, labels = training_batch
    with watch(model) as watched:
        model(ids, mask, labels=labels)
    site = Site(1, "attention")
    scale, hidden = watched.decisions[site][0].scale, watched.hidden[site][0]
    assert set(scale.detach().flatten().tolist()) == {0.0, 1.0}
    router = model.method.routers["1"]
    soft = torch.sigmoid(router(model.backbone.norm_before(site)(hidden)))
    (by_mask,) = torch.autograd.grad(scale.sum(), router.bias, retain_graph=True)
    (by_soft,) = torch.autograd.grad(soft.sum(), router.bias)
    torch.testing.assert_close(by_mask, by_soft)  # d mask / d s = 1

    after = watched.hidden[Site(1, "mlp")][0]
    probe = torch.randn(after.shape, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad((after * probe).sum(), scale)
    decoder = model.backbone_model.model
    update, _ = decoder.layers[1].self_attn(
        decoder.layers[1].input_layernorm(hidden),
        position_embeddings=decoder.rotary_emb(hidden, torch.arange(ids.shape[1])[None]),
        attention_mask=None,
    )
    torch.testing.assert_close(gradient[mask], (update * probe).sum(-1, keepdim=True)[mask], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(after[mask], (hidden + scale * update)[mask], atol=1e-5, rtol=1e-5)


def test_gradient_flows_between_routers(trainee, training_batch, watch):
    """A router's score depends on what earlier routers let through, and so does its gradient (released code)."""
    model = trainee("router_tuned_mod")
    ids, mask, _ = training_batch
    with watch(model) as watched:
        model(ids, mask)
    later = watched.decisions[Site(2, "attention")][0].scale
    (gradient,) = torch.autograd.grad(later.sum(), model.method.routers["1"].weight)
    assert float(gradient.abs().sum()) > 0


@pytest.mark.parametrize(("bias", "excess"), [(-8.0, 0.0), (8.0, 0.5)])
def test_regulariser(trainee, training_batch, bias, excess):
    """T-RT4: zero while the executed share is at most the capacity; the excess of each routed layer, summed, above."""
    model = trainee("router_tuned_mod[capacity=0.5,regulariser_weight=3]")
    _set_bias(model, bias)
    ids, mask, labels = training_batch
    loss = model(ids, mask, labels=labels).loss.item()
    assert model.loss_terms["capacity"] == pytest.approx(excess * len(ROUTED))
    assert loss == pytest.approx(model.loss_terms["ce"] + 3 * excess * len(ROUTED), rel=1e-5)


@torch.no_grad()
def test_granularity(shared_model, random_text, watch):
    """T-RT6: `paper` decides once per sequence in a prompt and per token afterwards; `bench` always per token."""
    ids = random_text(8, 12)
    mask = torch.ones_like(ids)
    mask[:4, :3] = 0
    mixed = {}
    for spec in ("router_tuned_mod", "router_tuned_mod@paper"):
        model = shared_model(spec)
        found = False
        for dial in (0.3, 0.5, 0.7, 0.9):
            model.dial = dial
            with watch(model) as watched:
                output = model(ids, mask, use_cache=True)
                model(ids[:, :1], past_key_values=output.past_key_values, use_cache=True)
            for layer in ROUTED:
                prompt, token = watched.keep[Site(layer, "attention")]
                found |= bool((prompt.any(1) & (prompt != mask.bool()).any(1)).any())
                assert token.shape == (8, 1)
        mixed[spec] = found
    assert mixed == {"router_tuned_mod": True, "router_tuned_mod@paper": False}


@torch.no_grad()
def test_a_sequence_is_routed_once(shared_model, random_text):
    """Sections 6.3, 6.7: `paper` evaluates a router once per prompt and once per written token, not once per token of
    the prompt; padding wastes nothing.
    """
    model, ids, hidden = shared_model("router_tuned_mod@paper"), random_text(3, 9), 32
    output = model(ids, torch.arange(9).expand(3, 9) >= torch.tensor([[0], [4], [7]]), use_cache=True)
    assert model.compute_report()["macs"]["overhead.decision"] == len(ROUTED) * 3 * hidden
    model(ids[:, :1], past_key_values=output.past_key_values)
    assert model.compute_report()["macs"]["overhead.decision"] == len(ROUTED) * (3 + 3) * hidden


@torch.no_grad()
def test_sequence_granularity_averages_real_tokens(shared_model, random_text):
    """T-RT6: padding does not enter the mean."""
    model, ids = shared_model("router_tuned_mod@paper"), random_text(1, 10)
    model.dial = 0.6
    padded = torch.cat([torch.zeros(1, 4, dtype=torch.long), ids], dim=1)
    logits = model(padded, (padded > 0).long()).logits[:, 4:]
    torch.testing.assert_close(logits, model(ids).logits, atol=1e-4, rtol=1e-4)
