"""D-LLM against its formulas: router, rate loss, reserved tokens, eviction."""

import pytest
import torch
from torch.nn import functional

from adaptive_bench.backbone import Site
from adaptive_bench.methods.d_llm import EXECUTE, SKIP, Router, rate_distance, rate_ramp
from adaptive_bench.model import AdaptiveModel

LAYERS, LENGTH, ROUTED = 4, 12, (2, 3)


@pytest.fixture
def model(shared_model):
    made = shared_model("d_llm")
    made.dial = made.method.dial_for(0.2)
    return made


def test_weight_of_the_rate_loss():
    """T-DL1: 1.913 at a quarter of the training and 3.536 at half of it, of 5."""
    assert 5 * rate_ramp(25, 100) == pytest.approx(1.913, abs=5e-4)
    assert 5 * rate_ramp(50, 100) == pytest.approx(3.536, abs=5e-4)
    assert 5 * rate_ramp(100, 100) == 5.0


def test_the_layers_that_are_not_routed_count():
    """T-DL5: 14 of 30 routed layers, with the first two, are half of 32."""
    executed = torch.zeros(3, 30)
    executed[0, :14], executed[1, :] = 1.0, 1.0
    assert rate_distance(executed, 32, 0.5).tolist() == pytest.approx([0.0, 0.5, 0.5 - 2 / 32])


@torch.no_grad()
def test_router_by_hand(make_backbone):
    """W2 SiLU(RMSNorm(W1 h)); an untrained one executes with a probability of .87 where its weights say nothing."""
    torch.manual_seed(0)
    router, states = Router(64, 16), torch.randn(9, 64)
    inner = states @ router.inner.weight.T + router.inner.bias
    normed = inner / (inner.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(router(states), functional.silu(normed) @ router.out.weight.T + router.out.bias)
    torch.nn.init.zeros_(router.out.weight)
    assert float(router(states).softmax(dim=-1)[0, EXECUTE]) == pytest.approx(0.87, abs=2e-3)
    wide = AdaptiveModel.build(make_backbone("llama", hidden_size=64), "d_llm[width=20]").method
    assert {router.inner.out_features for router in wide.routers.values()} == {16}


@torch.no_grad()
@pytest.mark.parametrize("executor", ["masked", "packed"])
def test_first_tokens_run_every_layer(model, ids, watch, executor):
    """T-DL3: positions 0 and 1, wherever padding puts them, at any dial; routers read the raw residual stream."""
    model.executor = executor
    padded, mask = functional.pad(ids, (3, 0)), torch.arange(LENGTH + 3).expand(4, -1) >= 3
    for dial in (-50.0, model.method.dial_for(0.2)):
        model.dial = dial
        with watch(model) as watched:
            model(padded, mask)
        for layer in ROUTED:
            keep = watched.keep[Site(layer, "layer")][0]
            assert bool(keep[:, 3:5].all())
            logits = model.method.routers[str(layer)](watched.hidden[Site(layer, "layer")][0])
            chosen = logits[..., EXECUTE] + model.dial >= logits[..., SKIP]
            assert torch.equal(keep[:, 5:], chosen[:, 5:])
    assert 0 < float(keep[:, 5:].float().mean()) < 1


def test_training_hides_keys_and_learns_from_who_skips(trainee, training_batch, watch):
    """A training call has the states of evaluation with its choices; skipping tokens too tell what executing was
    worth.
    """
    model = trainee("d_llm[omega=0.6]")
    ids, mask, labels = training_batch
    for router in model.method.routers.values():  # sampled choices that fall to both sides
        torch.nn.init.zeros_(router.out.bias)
        torch.nn.init.normal_(router.out.weight, std=0.1)
    with watch(model) as watched:
        output = model(ids, mask, labels=labels)
    keeps = {layer: watched.decisions[Site(layer, "layer")][0].keep for layer in ROUTED}
    assert all(0 < float(keep[mask].float().mean()) < 1 for keep in keeps.values())
    shares = torch.stack([keeps[layer].float() for layer in ROUTED], dim=-1)[mask]
    counted = (torch.arange(10).expand(3, -1) >= 2)[mask]
    distance = float(rate_distance(shares, LAYERS, 0.6)[counted].mean())
    assert model.loss_terms["rate"] == pytest.approx(distance, rel=1e-5)
    scales = [watched.decisions[Site(layer, "layer")][0].scale for layer in ROUTED]
    gradient = torch.autograd.grad(output.loss, scales, retain_graph=True)
    for layer, one in zip(ROUTED, gradient, strict=True):
        skipped = functional.pad(labels[:, 1:] != -100, (0, 1)) & ~keeps[layer]
        assert bool(skipped.any()) and bool((one[..., 0][skipped] != 0).all())
    plain = model.eval()
    plain.method.decide = lambda view: type(watched.decisions[Site(0, "layer")][0])(keep=keeps.get(view.site.layer))
    with torch.no_grad():
        torch.testing.assert_close(plain(ids, mask).logits[mask], output.logits[mask], atol=1e-4, rtol=1e-4)


def _released_attention(module, query, key, value, attention_mask, scaling, softcap=None, **_):
    """Attention of the released training: weights times choices, by their sum plus a little; 0 where no key is left."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = query @ key.transpose(2, 3) * scaling
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    weights = (scores - scores.detach().amax(dim=-1, keepdim=True)).exp() * (attention_mask == 0)
    return (weights / (weights.sum(dim=-1, keepdim=True) + 1e-12) @ value).transpose(1, 2).contiguous(), None


def _routers_gradient(model, ids, upto, watch):
    """Gradient of what is said at the first tokens for their choices, by routed layer [4, upto, L]; who skips there."""
    with watch(model) as watched:
        said = model(ids).logits[:, :upto]
    decisions = [watched.decisions[Site(int(layer), "layer")][0] for layer in model.method.routers]
    gradient = torch.autograd.grad(said.square().sum(), [one.scale for one in decisions])
    skips = torch.stack([~one.keep[:, :upto] for one in decisions], dim=-1)
    return torch.stack([one[:, :upto, 0] for one in gradient], dim=-1), skips


@pytest.mark.parametrize(
    ("family", "attention", "spec"),
    [
        ("llama", "sdpa", "d_llm[reserved=0,start_layer=0]"),
        ("llama", "eager", "d_llm[reserved=0,start_layer=0]"),
        ("gemma2", "eager", "d_llm"),  # a window of 6 tokens, of which all may have been dropped
    ],
)
def test_a_token_that_sees_no_key_learns_nothing_of_later_ones(
    make_model, make_backbone, random_text, watch, monkeypatch, family, attention, spec
):
    """A token that skips leaves no key for itself either. Where all keys before it were dropped too, its attention is 0
    in the released training: later tokens have no part in its router's gradient.
    """
    model = make_model(spec, backbone=make_backbone(family, attention))
    model.begin_step(10, 10)
    model.train()
    torch.manual_seed(1)
    for router in model.method.routers.values():  # most skip
        torch.nn.init.normal_(router.out.weight, std=0.1)
        router.out.bias.data.copy_(torch.tensor([1.5, 0.0]))
    upto, text = 9, random_text(4, LENGTH)
    other = torch.cat([text[:, :upto], random_text(4, LENGTH, seed=1)[:, upto:]], dim=1)
    gradient, skips = _routers_gradient(model, text, upto, watch)
    window = 6 if family == "gemma2" else LENGTH
    unseen = functional.pad(skips, (0, 0, window - 1, 0), value=True).unfold(1, window, 1).all(dim=-1)
    assert bool(unseen.any())
    assert torch.equal(gradient, _routers_gradient(model, other, upto, watch)[0])
    if attention == "eager":
        module = f"transformers.models.{family}.modeling_{family}.eager_attention_forward"
        monkeypatch.setattr(module, _released_attention)
        torch.testing.assert_close(gradient, _routers_gradient(model, text, upto, watch)[0], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_routers_are_run_and_counted_at_every_dial(make_model, random_text):
    """Where nothing skips too: H w + 2 w MACs, w a quarter of H, per token and routed layer; the 0 % point is no
    cheaper than what leads to it.
    """
    model, ids, counted = make_model("d_llm"), random_text(4, LENGTH), []
    for dial in (50.0, 49.0):
        model.dial = dial
        model.reset_ledger()
        model(ids)
        report = model.compute_report()
        assert report["saved"]["tokens"] == 0.0
        counted.append((report["macs"]["overhead.decision"], report["saved"]["net"]))
    assert counted[0] == counted[1] and counted[0][0] == ids.numel() * len(ROUTED) * (32 * 8 + 8 * 2)
