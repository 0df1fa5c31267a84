"""LayerSkip against its formulas: dropout curve, exit losses, curricula, static exit.

T-LS7 to T-LS9 are about self-speculative decoding: tests/model/test_speculation.py.
"""

import pytest
import torch
from torch.nn import functional

from adaptive_bench.backbone import Site
from adaptive_bench.model.generation import new_tokens

CURVE = (
    *(0, 0.0047, 0.0097, 0.0149, 0.0203, 0.0260, 0.0320, 0.0382),
    *(0.0447, 0.0516, 0.0587, 0.0662, 0.0741, 0.0823, 0.0910, 0.1000),
)


@pytest.fixture(scope="module")
def method(make_model, make_backbone):
    """`method(params, layers)`: LayerSkip with those parameters."""
    backbones = {layers: make_backbone("llama", num_hidden_layers=layers) for layers in (4, 16)}
    return lambda params="", layers=16: make_model(f"layerskip[{params}]", backbone=backbones[layers]).method


@pytest.mark.parametrize("highest", [0.1, 0.2])
def test_dropout_curve(method, highest):
    """T-LS1: the published values for 16 layers; 0 at the first layer, p_max at the last."""
    found = method(f"dropout={highest}")
    rates = [found.dropout_rate(layer) for layer in range(16)]
    assert rates == pytest.approx([highest / 0.1 * value for value in CURVE], abs=1e-4)
    assert rates[0] == 0.0
    assert rates[-1] == pytest.approx(highest)


@pytest.mark.parametrize("rotation", [2, 3, 8, 15])
def test_rotational_curriculum(method, rotation):
    """T-LS2: weights sum to 1 at every step, every layer (the last one too) is on once in R steps, few at a time."""
    found = method(f"curriculum=rotational,rotation={rotation}")
    rows = []
    for step in range(1, 3 * rotation + 1):
        found.begin_step(step, 100)
        assert sum(found.layer_weights()) == pytest.approx(1.0)
        rows.append(torch.tensor(found.enabled()))
    table = torch.stack(rows).int()
    assert bool((table.unfold(0, rotation, 1).sum(-1) == 1).all())
    assert int(table.sum(1).max()) <= -(-16 // rotation)


def test_gradual_curriculum(method):
    """T-LS2, T-LS3: from the last layer backwards, one more every T / 2L steps; all are on at half of training."""
    found = method("curriculum=gradual")
    total, counts = 320, []
    for step in range(1, total + 1):
        found.begin_step(step, total)
        on = found.enabled()
        assert on == sorted(on)  # a run of layers that ends with the last
        assert sum(found.layer_weights()) == pytest.approx(1.0)
        counts.append(sum(on))
    assert counts[0] == 1
    assert counts[9:11] == [1, 2]  # T / 2L = 10
    assert counts[total // 2 - 11] < 16
    assert counts[total // 2 :] == [16] * (total // 2)


def test_exit_weights(method):
    """Section 4.1: e(l) = e_scale l (l + 1) / 2; with e_scale 0.2 the last of 16 weighs 36, a share of 24.3 %."""
    found = method("exit_scale=0.2")
    found.begin_step(100, 100)
    weights = found.layer_weights()
    assert weights[-1] == pytest.approx(0.243, abs=5e-4)
    assert [weight / weights[-1] * 36 for weight in weights[:4]] == pytest.approx([0.0, 0.2, 0.6, 1.2])


def test_loss(make_model, make_backbone, random_text):
    """Section 4.1: the loss is the weighted sum of cross entropies through the shared norm and head."""
    backbone, ids = make_backbone("llama"), random_text(3, 10)
    model = make_model("layerskip[dropout=0,exit_scale=0.5]", backbone=backbone).train()
    model.begin_step(10, 10)
    *states, last = backbone(ids, output_hidden_states=True).hidden_states[1:]
    logits = [backbone.lm_head(state) for state in (*map(backbone.model.norm, states), last)]
    entropies = [functional.cross_entropy(x[:, :-1].flatten(0, 1), ids[:, 1:].flatten()) for x in logits]
    raw = torch.tensor([0.0, 0.5, 1.5, 3 + 0.5 * 3])
    expected = (raw / raw.sum() * torch.stack(entropies)).sum()
    torch.testing.assert_close(model(ids, labels=ids).loss, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("executor", ["masked", "packed"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_exit_equals_the_truncated_model(shared_model, random_text, truncated, layers, executor):
    """T-LS5: exit at E is the first E layers, the final norm and the head; in generation as well."""
    model, ids = shared_model("layerskip"), random_text(3, 12)
    model.executor, model.dial = executor, layers
    short = truncated(model.backbone_model, layers)
    torch.testing.assert_close(model(ids).logits, short(ids).logits, atol=1e-5, rtol=1e-5)
    generated = short.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)[:, 12:].tolist()
    assert new_tokens(model, ids, max_new_tokens=6) == generated
    assert model.compute_report()["saved"]["tokens"] == pytest.approx(1 - layers / 4)


@torch.no_grad()
def test_a_dropped_sample_passes_and_the_others_do_not_notice(make_model, make_backbone, random_text, watch):
    """T-LS6: whole samples drop a layer: its output is its input; the others are as without them; no rescaling."""
    model = make_model("layerskip[dropout=0.9]", backbone=make_backbone("llama")).train()
    ids = random_text(12, 9)
    model.begin_step(3, 10)
    with watch(model) as watched:
        together = model(ids).logits
    drops = 0
    for layer in range(3):
        keep = watched.keep[Site(layer, "layer")][0]
        before, after = (watched.hidden[Site(number, "layer")][0] for number in (layer, layer + 1))
        assert torch.equal(keep.any(1), keep.all(1))
        dropped = ~keep[:, 0]
        drops += int(dropped.sum())
        assert torch.equal(after[dropped], before[dropped])
        dense = model.backbone_model.model.layers[layer](
            before,
            position_embeddings=model.backbone_model.model.rotary_emb(before, torch.arange(9)[None]),
            attention_mask=None,
        )
        torch.testing.assert_close(after[~dropped], dense[~dropped], atol=1e-5, rtol=1e-5)
    assert 0 < drops < 36
    assert bool(watched.keep[Site(0, "layer")][0].all())  # the first layer never drops
    for row in range(12):
        torch.testing.assert_close(model(ids[row : row + 1]).logits[0], together[row], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_dropout_rate_is_met(make_model, make_backbone, random_text, watch):
    """T-LS6: over many samples each layer drops about as often as the curve says, and anew at every step."""
    model = make_model("layerskip[dropout=0.5]", backbone=make_backbone("llama")).train()
    ids, kept = random_text(200, 3), []
    for step in (1, 2):
        model.begin_step(step, 10)
        with watch(model) as watched:
            model(ids)
        kept.append(torch.stack([masks[0][:, 0] for masks in watched.keep.values()]).float())
    rates = [model.method.dropout_rate(layer) for layer in range(4)]
    for table in kept:
        assert (1 - table.mean(1)).tolist() == pytest.approx(rates, abs=0.12)
    assert bool((kept[0] != kept[1]).any())


def test_dial_is_the_nearest_layer(method):
    found = method(layers=16)
    assert [found.dial_for(saving) for saving in (0.0, 0.05, 0.25, 0.5, 0.99)] == [16, 15, 12, 8, 1]
