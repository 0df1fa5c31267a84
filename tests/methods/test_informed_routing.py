"""Informed Routing against its formulas: forecasts for skipped tokens, two stages, what is booked."""

import pytest
import torch
from torch.nn import functional

from adaptive_bench.backbone import Site
from adaptive_bench.model import AdaptiveModel

LAYERS, LENGTH, WIDTH, RANK = 4, 12, 32, 100


def skipping(model, dial=0.0):
    """Routers that send tokens both ways."""
    with torch.no_grad():
        for router in model.method.routers:
            router[-1].bias.zero_()
    model.dial = dial
    return model


def sites():
    return [Site(layer, branch) for layer in range(LAYERS) for branch in ("attention", "mlp")]


@torch.no_grad()
@pytest.mark.parametrize("executor", ["masked", "packed"])
def test_zero_forecasters_are_plain_skipping(make_model, make_backbone, ids, watch, executor):
    """T-IR2: the logits of `substitute=none` with the same routers, and the same books but for the forecasts."""
    model = skipping(make_model("informed_routing", backbone=make_backbone("llama")))
    plain = AdaptiveModel.build(make_backbone("llama"), "informed_routing[substitute=none]").eval()
    plain.method.routers.load_state_dict(model.method.routers.state_dict())
    plain.dial = model.dial
    for forecaster in model.method.forecasters:
        forecaster[-1].weight.zero_()
        forecaster[-1].bias.zero_()
    model.executor = plain.executor = executor
    for one in (model, plain):
        one.reset_ledger()
    assert torch.equal(model(ids).logits, plain(ids).logits)
    books, others = (one.compute_report()["macs"] for one in (model, plain))
    assert books.pop("overhead.adapter") > others.pop("overhead.adapter") == 0
    if executor == "packed":
        assert books == others
    assert 0.1 < model.compute_report()["saved"]["tokens"] < 0.9


@torch.no_grad()
@pytest.mark.parametrize("executor", ["masked", "packed"])
def test_a_perfect_forecast_is_the_base_model(make_model, make_backbone, ids, executor):
    """T-IR3: where the forecast is the branch's output it does not matter who skips. Attention keeps its K,V."""
    model = skipping(make_model("informed_routing", backbone=make_backbone("llama")))
    decoder, method = model.backbone_model.model, model.method

    def perfect(view, tokens):
        layer = decoder.layers[view.site.layer]
        if view.site.branch == "mlp":
            return layer.mlp(view.normed_at(tokens))
        rotary = decoder.rotary_emb(view.hidden, torch.arange(LENGTH)[None])
        output, _ = layer.self_attn(view.normed, position_embeddings=rotary, attention_mask=None)
        return output.flatten(0, 1)[tokens]

    method._forecast = perfect
    model.executor = executor
    torch.testing.assert_close(model(ids).logits, model.backbone_model(ids).logits, atol=1e-4, rtol=0)
    assert model.compute_report()["saved"]["tokens"] > 0.1


@torch.no_grad()
def test_forecasts_are_booked_for_tokens_that_skip(make_model, make_backbone, ids, watch):
    """T-IR4: 2 H rank MACs each, in `overhead.adapter`; the dispatcher's count is a check of the conformance suite."""
    model = skipping(make_model("informed_routing", backbone=make_backbone("llama")))
    model.reset_ledger()
    with watch(model) as watched:
        model(ids)
    skipped = sum(int((~masks[0]).sum()) for masks in watched.keep.values())
    assert model.compute_report()["macs"]["overhead.adapter"] == skipped * 2 * WIDTH * RANK > 0


def test_stages_leave_alone_what_is_not_theirs(trainee, training_batch):
    """T-IR6: stage 1 trains the forecasters alone, stage 2 the routers alone; the backbone rests in both."""
    model = trainee("informed_routing[forecast_share=0.5]")
    ids, mask, labels = training_batch
    skipping(model)
    optimizer = torch.optim.AdamW(model.method.parameters(), lr=0.01, weight_decay=0.1)
    for step, moves in ((4, "forecasters"), (5, "forecasters"), (6, "routers"), (10, "routers")):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        model.begin_step(step, 10)
        optimizer.zero_grad()
        model(ids, mask, labels=labels).loss.backward()
        optimizer.step()
        moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
        assert moved == {name for name in before if name.startswith(f"method.{moves}.")}, step


def test_the_forecasters_loss_of_a_call(trainee, training_batch, watch):
    """Stage 1: everything executes, and the loss is the sum over branches of SmoothL1 to what each added."""
    model = trainee("informed_routing", step=1, total_steps=10)
    ids, mask, labels = training_batch
    with torch.no_grad(), watch(model) as watched:
        loss = float(model(ids, mask, labels=labels).loss)
        states = [watched.hidden[site][0] for site in sites()]
        wanted = 0.0
        for number, (site, before, after) in enumerate(zip(sites()[:-1], states[:-1], states[1:], strict=True)):
            forecast = model.method.forecasters[number](model.backbone.norm_before(site)(before))
            wanted += float(functional.smooth_l1_loss(forecast[mask], (after - before)[mask]))
        last = model.backbone_model.model.layers[-1]
        read = last.post_attention_layernorm(states[-1])
        wanted += float(functional.smooth_l1_loss(model.method.forecasters[-1](read)[mask], last.mlp(read)[mask]))
    assert model.method.forecasts
    assert all(bool(masks[0][mask].all()) for masks in watched.keep.values())
    assert loss == pytest.approx(wanted, rel=1e-4)


def test_losses_of_stage_two(trainee, training_batch, watch):
    """CE + 8 |target - executed| + .1 mean_l sum_b sum m (1 - cos(h, h + g)) / (sum m + 1), of real tokens."""
    model = skipping(trainee("informed_routing[sparsity=0.25]"))
    ids, mask, labels = training_batch
    with torch.no_grad(), watch(model) as watched:
        loss = float(model(ids, mask, labels=labels).loss)
        similarity, executed = 0.0, []
        for number, site in enumerate(sites()):
            states, scale = watched.hidden[site][0], watched.decisions[site][0].scale[..., 0]
            skips = (1 - scale)[mask]
            forecast = model.method.forecasters[number](model.backbone.norm_before(site)(states))
            turned = 1 - functional.cosine_similarity(states, states + forecast, dim=-1)[mask]
            similarity += float((skips * turned).sum() / (skips.sum() + 1)) / LAYERS
            executed.append(float(scale[mask].mean()))
    terms = model.loss_terms
    assert terms["similarity"] == pytest.approx(similarity, rel=1e-4)
    assert terms["target"] == pytest.approx(abs(0.75 - sum(executed) / len(executed)), rel=1e-4)
    assert loss == pytest.approx(terms["ce"] + 8 * terms["target"] + 0.1 * terms["similarity"], rel=1e-5)


def test_a_router_learns_from_branch_and_forecast(trainee, training_batch, watch):
    """d h / d e = f - g: with a forecast that is the branch's output the choice has no gradient."""
    model = skipping(trainee("informed_routing[penalty_weight=0,similarity_weight=0]"))
    ids, mask, labels = training_batch
    model(ids, mask, labels=labels).loss.backward()
    assert all(float(router[-1].weight.grad.abs().sum()) > 0 for router in model.method.routers)
    last, method = model.backbone_model.model.layers[-1], model.method
    forecast = method._forecast

    def perfect(view, tokens):
        return last.mlp(view.normed_at(tokens)) if view.site == sites()[-1] else forecast(view, tokens)

    method._forecast = perfect
    model.zero_grad()
    model(ids, mask, labels=labels).loss.backward()
    assert float(method.routers[-1][-1].weight.grad.abs().max()) < 1e-7
    assert float(method.routers[-2][-1].weight.grad.abs().max()) > 1e-5


def test_schedules_begin_with_stage_two(trainee):
    """The routers' target and temperature start where the forecasters' training ends, if there are any."""
    alone = trainee("informed_routing[substitute=none]", step=1, total_steps=10).method
    assert not alone.forecasts and not alone.forecasters
    method = trainee("informed_routing[forecast_share=0.5]").method
    method.begin_step(11, 20)
    assert method.routing_step == (1, 10)
    method.begin_step(20, 20)
    assert method.routing_step == (10, 10)
