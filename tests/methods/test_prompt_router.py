"""The prompt router against its formulas: routers over mean states, a choice per row, a penalty over all tokens."""

import pytest
import torch

from adaptive_bench.backbone import Site
from adaptive_bench.methods.branch_routers import EXECUTE, EXECUTE_BIAS, SKIP
from adaptive_bench.model import AdaptiveModel

LAYERS, PROMPT, LENGTH = 4, 5, 12


@pytest.fixture
def ids(random_text):
    return random_text(4, LENGTH)


@torch.no_grad()
def test_routers_read_the_mean_of_the_prompt(make_model, make_backbone, ids, watch):
    """Of the residual stream before the layer; the offset of the dial comes on top of the execute logit."""
    model = make_model("prompt_router", backbone=make_backbone("llama"))
    follows = torch.arange(LENGTH).expand_as(ids) >= PROMPT
    for model.dial in (-0.4, 0.0, 0.7):
        with watch(model) as watched:
            model(ids, continuation_mask=follows)
        for layer, router in enumerate(model.method.routers):
            logits = router(watched.hidden[Site(layer, "layer")][0][:, :PROMPT].mean(dim=1))
            runs = logits[:, EXECUTE] + model.dial >= logits[:, SKIP]
            keep = watched.keep[Site(layer, "layer")][0]
            assert bool(keep[:, :PROMPT].all()) and torch.equal(keep[:, PROMPT:], runs[:, None].expand(-1, 7))


def test_an_untrained_router_executes(make_backbone):
    """Its logits start 5 apart."""
    for router in AdaptiveModel.build(make_backbone("llama"), "prompt_router").method.routers:
        assert float(router.bias[EXECUTE].detach() - router.bias[SKIP].detach()) == EXECUTE_BIAS == 5.0


def test_penalty_of_a_call(trainee, training_batch, watch):
    """|(1 - s) - mean over layers of the executed share| of real tokens; one choice a row, prompts execute."""
    model = trainee("prompt_router[sparsity=0.4,penalty_weight=20]")
    ids, mask, labels = training_batch
    with torch.no_grad():
        for router in model.method.routers:
            router.bias.zero_()
    follows = (labels != -100) & mask
    with watch(model) as watched:
        loss = model(ids, mask, labels=labels, continuation_mask=follows).loss
    scales = torch.stack([watched.decisions[Site(layer, "layer")][0].scale[..., 0] for layer in range(LAYERS)])
    for row in range(len(ids)):
        inside = scales[:, row][:, follows[row]]
        assert torch.equal(inside, inside[:, :1].expand_as(inside))
    assert set(scales.detach().unique().tolist()) == {0.0, 1.0} and bool((scales[:, ~follows] == 1).all())
    distance = abs(0.6 - float(scales[:, mask].detach().mean()))
    assert model.loss_terms["target"] == pytest.approx(distance, abs=1e-6) and distance > 0.01
    assert float(loss.detach()) == pytest.approx(model.loss_terms["ce"] + 20 * distance, rel=1e-5)
    loss.backward()
    assert all(bool(router.weight.grad.any()) for router in model.method.routers)


@torch.no_grad()
def test_an_answer_skips_layers_as_if_they_were_not_there(make_model, make_backbone, ids, truncated):
    """Prompt at full depth, then the last two layers closed: the states after it are those of the layers below."""
    model = make_model("prompt_router", backbone=make_backbone("llama"))
    for layer, router in enumerate(model.method.routers):
        router.weight.zero_()
        router.bias.copy_(torch.tensor([1.0, -1.0] if (layer >= 2) == (EXECUTE == 1) else [-1.0, 1.0]))
    model.dial = 0.0
    cache = model(ids[:, :PROMPT], use_cache=True).past_key_values
    logits = model(ids[:, PROMPT:], past_key_values=cache, use_cache=True).logits
    short = truncated(model.backbone_model, 2)
    torch.testing.assert_close(logits, short(ids).logits[:, PROMPT:], atol=1e-4, rtol=1e-4)
    sites = model.compute_report()["counts"]["decode"]
    assert sites["executed"] == [[28, 28], [28, 28], [0, 0], [0, 0]]
