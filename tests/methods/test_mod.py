"""Mixture-of-Depths: capacity, routing, eviction, predictor."""

import pytest
import torch

from adaptive_bench.backbone import Site
from adaptive_bench.model import AdaptiveModel

ROUTED, LAYERS = (1, 3), 4


@pytest.mark.parametrize(("capacity", "kept"), [(1.0, (12, 7, 1)), (0.5, (6, 3, 1)), (0.125, (1, 1, 1))])
def test_exactly_k_tokens_per_sequence(capacity, kept, shared_model, random_text):
    """T-MoD1, T-MoD9: k = max(1, floor(c S)) of each sequence in routed blocks, everybody elsewhere; padding never."""
    model, mask = shared_model("mod@paper"), torch.arange(12).expand(3, 12) >= torch.tensor([[0], [5], [11]])
    model.dial = capacity
    with torch.no_grad():
        cache = model(random_text(3, 12), mask, use_cache=True).past_key_values
    for layer in range(LAYERS):
        assert cache.stores[layer].table.lengths.tolist() == (list(kept) if layer in ROUTED else [12, 7, 1])
    sites = {(site["layer"], site["branch"]): site["executed"] for site in model.compute_report()["sites"]}
    for (layer, _), executed in sites.items():  # attention and MLP alike
        assert executed == pytest.approx(sum(kept) / 20 if layer in ROUTED else 1.0)


@torch.no_grad()
def test_an_untrained_router_tells_tokens_apart(shared_backbone, random_text, watch):
    """Its order is none of position: below capacity 1 top-k and thresholds take a random choice of the tokens."""
    ids = random_text(64, 20)
    text = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "continuation_mask": torch.zeros_like(ids)}
    for spec in ("mod", "mod[capacity_start=0.5]"):
        model = AdaptiveModel.build(shared_backbone("llama"), spec).eval()
        if spec == "mod":
            (point,) = model.calibrate([text], [0.25])["dials"]
            assert point["status"] == "ok"  # equal scores would leave a threshold nothing to cut
            model.dial = model.method.dial_for(0.25)
        else:
            model.train()
            model.begin_step(1, 10)
        with watch(model) as watched:
            model(ids)
        by_position = list(watched.keep.values())[1][0].float().mean(dim=0)
        assert by_position.mean() == pytest.approx(0.5, abs=0.01)
        assert by_position[:10].mean() == pytest.approx(0.5, abs=0.15)


@torch.no_grad()
def test_the_router_score_scales_the_update(make_model, random_text):
    """T-MoD2: x + r f(x): r = 0 leaves a block without effect, r = -1 turns its update around."""
    model, ids = make_model("mod[every=4]"), random_text(2, 9)
    router, seen = model.method.routers["3"], []
    router.weight.zero_()
    model.backbone.decoder.norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for score in (1.0, 0.0, -1.0):
        router.bias.fill_(score)
        model(ids)
    model.backbone.decoder.norm._forward_pre_hooks.clear()
    torch.testing.assert_close(seen[0] - seen[1], seen[1] - seen[2], atol=1e-4, rtol=1e-4)
    assert (seen[0] - seen[1]).abs().max() > 0.1


@pytest.mark.parametrize("spec", ["mod", "mod@paper"])
@torch.no_grad()
def test_a_bypassing_token(spec, shared_model, random_text, watch):
    """T-MoD3, T-MoD4: through a routed block it is bit-identical, and nobody in that block sees it."""
    model, ids = shared_model(spec), random_text(1, 12)
    model.dial = 0.5 if spec == "mod@paper" else model.method.dial_for(0.3)
    with watch(model) as watched:
        cache = model(ids, use_cache=True).past_key_values
    before, after = (watched.hidden[Site(layer, "layer")][0][0] for layer in (1, 2))
    keep = watched.keep[Site(1, "layer")][0][0]
    assert keep.any() and not keep.all()
    assert torch.equal(after[~keep], before[~keep])
    assert (after[keep] != before[keep]).any(dim=-1).all()
    # T-MoD8, T-MoD9: the block's cache holds the selected tokens only, in their order, at their positions
    assert cache.stores[1].table.visible()[0].tolist() == keep.nonzero()[:, 0].tolist()


@pytest.mark.parametrize("spec", ["mod", "mod@paper", "mod[route_by=predictor]", "mod[route_by=router]@paper"])
@torch.no_grad()
def test_the_capacity_holds_for_prompts_and_for_what_is_written(spec, shared_model, random_text):
    """Section 5.4: decoding follows the dial as the prompt does; at capacity 1 everybody passes, in both."""
    model, ids = shared_model(spec), random_text(60, 30)
    for capacity in (1.0, 0.6, 0.2):
        model.dial = capacity
        output = model(ids[:, :15], use_cache=True)
        model.reset_ledger()
        model(ids[:, :15])
        for at in range(15, 30):
            model(ids[:, at : at + 1], past_key_values=output.past_key_values)
        report = model.compute_report()
        for phase in ("prefill", "decode"):
            slack = 0 if capacity == 1 else 0.06
            assert report[phase]["tokens"] == pytest.approx((1 - capacity) * len(ROUTED) / LAYERS, abs=slack)


@torch.no_grad()
def test_whose_score_picks_the_tokens_that_are_written(make_model, random_text):
    """Section 5.4: the predictor in `paper`, the router itself in `bench`; `route_by` says otherwise."""
    for spec, decides in (("mod", "router"), ("mod@paper", "predictor"), ("mod[route_by=router]@paper", "router")):
        model = make_model(spec)
        assert bool(model.method.predictors) == (decides == "predictor")
        model.dial = model.method.dial_for(0.3)
        output = model(random_text(2, 8), use_cache=True)
        parts = model.method.predictors.values() if decides == "predictor" else model.method.routers.values()
        for part in parts:  # nobody reaches the threshold
            (part[-1] if decides == "predictor" else part).bias.fill_(-1e3)
        model.reset_ledger()
        model(random_text(2, 1), past_key_values=output.past_key_values)
        assert model.compute_report()["decode"]["tokens"] == 0.5


def test_router_gradient(trainee, training_batch):
    """T-MoD5: the router learns because its score scales the block; without the scale it gets no gradient."""
    ids, mask, labels = training_batch
    for scaled in (True, False):
        model = trainee("mod")
        if not scaled:
            decide = model.method.decide

            def unscaled(view, decide=decide):
                return type(decision := decide(view))(decision.keep)

            model.method.decide = unscaled
        model(ids, mask, labels=labels).loss.backward()
        reached = [
            router.weight.grad is not None and router.weight.grad.any() for router in model.method.routers.values()
        ]
        assert reached == [scaled] * len(ROUTED)


def test_predictor_loss(trainee, training_batch):
    """T-MoD6: targets are top-k membership (k per sequence), inputs are detached, the backbone feels nothing."""
    model = trainee("mod[capacity=0.5,route_by=predictor]")
    ids, mask, labels = training_batch
    losses, calls = model.method.losses, []
    model.method.losses = lambda call: calls.append(call) or losses(call)
    model(ids, mask, labels=labels)
    members = calls[0].records["member"]
    assert [member.sum(dim=1).tolist() for member in members] == [[5, 3, 2]] * len(ROUTED)
    assert not any((member & ~mask).any() for member in members)
    _, loss = losses(calls[0])["predictor"]
    loss.backward()
    predictors = {id(parameter) for parameter in model.method.predictors.parameters()}
    for name, parameter in model.named_parameters():
        touched = parameter.grad is not None and bool(parameter.grad.any())
        assert touched == (id(parameter) in predictors), name


def test_the_auxiliary_loss_teaches_the_router_and_reaches_the_backbone(trainee, training_batch):
    """Section 3.5: binary cross entropy of sigmoid(r) against top-k membership."""
    model = trainee("mod[auxiliary_weight=0.1,capacity=0.5]")
    ids, mask, labels = training_batch
    losses, calls = model.method.losses, []
    model.method.losses = lambda call: calls.append(call) or losses(call)
    total = model(ids, mask, labels=labels).loss
    weight, loss = losses(calls[0])["auxiliary"]
    member, r = (torch.stack(calls[0].records[name])[:, mask] for name in ("member", "routed"))
    right = torch.where(member, r, -r).sigmoid().detach()
    assert weight == 0.1 and 0 < member.float().mean() < 1
    assert float(loss.detach()) == pytest.approx(float(-right.log().mean()), rel=1e-5)
    assert float(total.detach()) == pytest.approx(model.loss_terms["ce"] + 0.1 * float(loss.detach()), rel=1e-5)
    loss.backward()
    assert all(router.weight.grad.any() for router in model.method.routers.values())
    below = model.backbone_model.model.layers[0].mlp.down_proj.weight
    assert below.grad is not None and below.grad.any()
