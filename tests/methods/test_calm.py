"""CALM against its formulas: confidence, decay, state propagation, loss weights, cost of probing.

What comes out of an exit: test_early_exits.py.
"""

import math

import pytest
import torch
from torch.nn import functional
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from adaptive_bench.backbone import Site
from adaptive_bench.methods.calm import NEVER, balanced_cross_entropy, converged, decayed, layer_weights

LAYERS, LENGTH, PROMPT = 4, 12, 6


@torch.no_grad()
def _middle_dial(model, ids, answer):
    """A threshold that about half of the probes reach."""
    model.dial = model.method.dial.minimum
    states = model.backbone_model(ids, output_hidden_states=True).hidden_states[1:-1]
    top = [model.backbone.head(model.backbone.final_norm(s[answer])).softmax(-1).topk(2).values for s in states]
    model.dial = float((torch.cat(top)[:, 0] - torch.cat(top)[:, 1]).median())


@torch.no_grad()
@pytest.mark.parametrize("spec", ["calm", "calm[confidence=state]"])
def test_a_larger_threshold_never_exits_earlier(shared_model, random_text, watch, depth, spec):
    """T-CA3: for the same prefix the exit layer rises with the threshold."""
    model = shared_model(spec)
    ids = random_text(16, LENGTH)
    last = (torch.arange(LENGTH) == LENGTH - 1).expand_as(ids)  # the prefix runs at full depth: the same for all
    depths = []
    for dial in torch.linspace(model.method.dial.minimum, NEVER, 15).tolist():
        model.dial = dial
        with watch(model) as watched:
            model(ids, continuation_mask=last)
        depths.append(depth(watched)[:, -1])
    path = torch.stack(depths)
    assert bool((path.diff(dim=0) >= 0).all())
    assert path.unique().numel() == LAYERS - (spec != "calm")


def test_loss_weights_rise_with_depth(make_model, make_backbone, ids):
    """T-CA4: for four layers the loss is 0.1, 0.2, 0.3, 0.4 times the cross entropies through final norm and head."""
    assert layer_weights(4) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    backbone = make_backbone("llama")
    model = make_model("calm", backbone=backbone).train()
    with torch.no_grad():
        *states, normed = backbone(ids, output_hidden_states=True).hidden_states[1:]
        logits = [backbone.lm_head(s) for s in (*(backbone.model.norm(state) for state in states), normed)]
        entropies = [functional.cross_entropy(x[:, :-1].flatten(0, 1), ids[:, 1:].flatten()) for x in logits]
    loss = model(ids, labels=ids).loss
    expected = sum(weight * float(value) for weight, value in zip([0.1, 0.2, 0.3, 0.4], entropies, strict=True))
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)
    loss.backward()
    assert all(parameter.grad is not None for parameter in backbone.parameters())


@torch.no_grad()
def test_upper_layers_store_keys_and_values_of_the_exit_state(shared_model, ids, answer, watch, depth):
    """T-CA5: above its exit a token's K,V are each layer's own projection of its own norm of the exit state."""
    model = shared_model("calm")
    _middle_dial(model, ids, answer)
    with watch(model) as watched:
        cache = model(ids, continuation_mask=answer, use_cache=True).past_key_values
    depths = depth(watched)
    assert {1, 2, 3} <= set(depths.unique().tolist())  # some exit later than at the first exit
    carried = watched.hidden[Site(LAYERS - 1, "layer")][0]
    decoder = model.backbone_model.model
    cos, sin = decoder.rotary_emb(carried, torch.arange(LENGTH)[None])
    for number, layer in enumerate(decoder.layers):
        skipped = depths <= number
        normed = layer.input_layernorm(carried)
        keys, values = (
            projection(normed).view(*ids.shape, -1, layer.self_attn.head_dim).transpose(1, 2)
            for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj)
        )
        keys = apply_rotary_pos_emb(keys, keys, cos, sin)[1]
        stored_keys, stored_values = cache.stores[number].view()
        for stored, expected in ((stored_keys, keys), (stored_values, values)):
            torch.testing.assert_close(
                stored.transpose(1, 2)[skipped], expected.transpose(1, 2)[skipped], atol=1e-5, rtol=1e-5
            )


def test_decay_values():
    """T-CA6: both forms of the falling threshold at the start, in the middle and at the end (temperature 4)."""
    place = torch.tensor([0.0, 0.5, 1.0])
    end = math.exp(-4)
    assert decayed(0.9, place, 4.0, "t5x").tolist() == pytest.approx([0.9, 0.8222, 0.81 + 0.09 * end], abs=1e-4)
    assert decayed(0.9, place, 4.0, "paper").tolist() == pytest.approx([0.91, 0.8235, 0.81 + 0.1 * end], abs=1e-4)
    assert float(decayed(1.0, place[:1], 4.0, "paper")) == 1.0  # clipped


@torch.no_grad()
def test_decay_starts_at_the_token_the_prompt_writes(shared_model, ids, answer, watch):
    """T-CA6: the prompt's last token writes number t = 0."""
    model = shared_model("calm[decay=paper,decay_steps=6]")
    model.dial = 0.9
    with watch(model) as watched:
        model(ids, continuation_mask=answer)
    steps = torch.arange(LENGTH) - (PROMPT - 1)
    expected = decayed(0.9, steps.clamp(min=0) / 6, 4.0, "paper").expand_as(ids)
    torch.testing.assert_close(model.method.threshold(watched.calls[Site(1, "layer")][0]), expected, atol=1e-6, rtol=0)


@torch.no_grad()
def test_every_probe_is_charged_and_the_last_one_is_the_output(shared_model, ids, answer, writing, watch, depth):
    """T-CA9: one head per probe; the probe that lets a token exit is its output and counts once."""
    model = shared_model("calm")
    _middle_dial(model, ids, answer)
    with watch(model) as watched:
        model(ids, continuation_mask=answer)
    depths = depth(watched)[writing]
    probes = int(depths.sum() - (depths == LAYERS).sum())  # one after each executed layer but the last
    exits = int((depths < LAYERS).sum())
    macs, head = model.compute_report()["macs"], model.backbone.head_macs
    assert macs["overhead.decision"] == (probes - exits) * head
    assert macs["core.head"] == ids.numel() * head


@torch.no_grad()
@pytest.mark.parametrize("confidence", ["softmax", "state", "classifier", "convergence"])
def test_a_probe_costs_what_its_measure_takes(make_model, ids, answer, writing, confidence):
    """Section 3.3: a run of the head, the products and norms of a cosine, or one linear map to a logit; TIDE's router
    is a map to 128 values and one to a logit. Each request behind a row pays.
    """
    model = make_model(f"calm[confidence={confidence}]").eval()
    hidden, vocabulary = model.backbone.hidden_size, model.backbone.vocab_size
    router = 128 * hidden + 128
    price = {"softmax": hidden * vocabulary, "state": 3 * hidden, "classifier": hidden, "convergence": router}
    model.dial = NEVER
    model(ids, continuation_mask=answer, requests=[3, 1, 1, 2])
    probes = 7 * int(writing[0].sum()) * (LAYERS - model.method.first_exit)
    assert model.compute_report()["macs"]["overhead.decision"] == probes * price[confidence]


@torch.no_grad()
def test_nobody_exits_above_one_however_late_in_the_answer(shared_model, ids, answer, watch, depth):
    """A threshold that decays from above 1 would come down to 0.9."""
    model = shared_model("calm[decay=paper,decay_steps=2]")
    model.dial = NEVER
    with watch(model) as watched:
        model(ids, continuation_mask=answer)
    assert bool((depth(watched) == LAYERS).all())


def test_balanced_cross_entropy_by_hand():
    """Released code: each label weighs the other one's share; at logit 0 every token costs ln 2."""
    agrees = torch.tensor([1.0, 1.0, 1.0, 0.0])
    expected = math.log(2) * (3 * 0.25 + 0.75) / 4
    assert float(balanced_cross_entropy(torch.zeros(4), agrees)) == pytest.approx(expected)
    assert float(balanced_cross_entropy(torch.randn(4), torch.ones(4))) == 0.0


def test_the_classifier_learns_when_a_layer_agrees_with_the_last(make_model, make_backbone, ids):
    """Section 3.3: a second stage labels from its own predictions, mean over layers below."""
    backbone = make_backbone("llama")
    model = make_model("calm[confidence=classifier]", backbone=backbone).train()
    with torch.no_grad():
        *states, last = backbone(ids, output_hidden_states=True).hidden_states[1:]
        guesses = [backbone.lm_head(s).argmax(-1) for s in (*map(backbone.model.norm, states), last)]
        logits = [model.method.classifier(state)[..., 0] for state in states]
        parts = [
            balanced_cross_entropy(logit[:, :-1].flatten(), (guess == guesses[-1])[:, :-1].flatten().float())
            for logit, guess in zip(logits, guesses[:-1], strict=True)
        ]
    loss = model(ids, labels=ids).loss
    assert float(loss.detach()) == pytest.approx(float(torch.stack(parts).mean()), rel=1e-5)


def test_a_state_has_converged_where_it_points_as_the_last_one_does():
    """TIDE: cos(h_l, h_L) > 0.98, whatever the lengths; 11 degrees are 0.9816, 12 are 0.9781."""
    angles = torch.tensor([0.0, 11.0, 12.0, 90.0, 180.0]).deg2rad()
    states = torch.stack([angles.cos(), angles.sin()], dim=-1) * torch.tensor([[5.0], [0.1], [1.0], [2.0], [3.0]])
    assert converged(states, torch.tensor([[2.0, 0.0]]).expand(5, 2), 0.98).tolist() == [1, 1, 0, 0, 0]


def test_routers_learn_which_states_have_converged(make_model, make_backbone, ids):
    """TIDE's labels and plain cross entropy, of each layer's own router on states after the final norm. Both states of
    a label are residual streams: the library's last one comes after the final norm.
    """
    backbone = make_backbone("llama")
    model = make_model("calm[confidence=convergence,converged_at=0.5]", backbone=backbone).train()
    streams = []
    backbone.model.norm.register_forward_pre_hook(lambda _, inputs: streams.append(inputs[0]))
    with torch.no_grad():
        states = backbone(ids, output_hidden_states=True).hidden_states[1:-1]
        last, parts, shares = streams[0], [], []
        for router, state in zip(model.method.routers, states, strict=True):
            down, _, up = router
            logits = functional.silu(backbone.model.norm(state) @ down.weight.T) @ up.weight.T
            label = (functional.cosine_similarity(state, last, dim=-1) > 0.5).float()
            shares.append(float(label.mean()))
            parts.append(functional.binary_cross_entropy_with_logits(logits[:, :-1, 0], label[:, :-1]))
    assert any(0 < share < 1 for share in shares), shares
    loss = model(ids, labels=ids).loss
    assert float(loss.detach()) == pytest.approx(float(torch.stack(parts).mean()), rel=1e-5)
