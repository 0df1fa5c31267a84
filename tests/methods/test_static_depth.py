"""Static depth: the control that leaves out the same layers for every token."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from adaptive_bench.errors import UsageError
from adaptive_bench.method import described
from adaptive_bench.method.fitted import block_influence
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.calibration import let_measure
from adaptive_bench.runs.training_work import price

RULES = ("bi", "angular", "ppl", "search")
LAYERS, LENGTH, PROMPT = 4, 14, 6


def _without(backbone, skipped):
    short = copy.deepcopy(backbone)
    short.model.layers = nn.ModuleList(layer for at, layer in enumerate(short.model.layers) if at not in skipped)
    for at, layer in enumerate(short.model.layers):
        layer.self_attn.layer_idx = at
    short.config.num_hidden_layers = len(short.model.layers)
    if getattr(short.config, "layer_types", None):
        short.config.layer_types = [kind for at, kind in enumerate(backbone.config.layer_types) if at not in skipped]
    return short


@torch.no_grad()
def test_named_layers(make_model, random_text):
    """The logits are those of the Hugging Face model with the named layers deleted, as many as the dial says."""
    model, ids = make_model("static_depth[layers=3+1]").eval(), random_text(3, 12)
    for count, skipped in ((1, {3}), (2, {1, 3})):
        model.saving = count / LAYERS
        assert model.method.skipped_layers() == skipped
        short = _without(model.backbone_model, skipped)
        torch.testing.assert_close(model(ids).logits, short(ids).logits, atol=1e-5, rtol=1e-5)
        assert model.compute_report()["saved"]["tokens"] == pytest.approx(count / LAYERS)
    with pytest.raises(UsageError, match=r"can save from 0 to 0\.5"):
        model.saving = 0.75


def _without_branches(backbone, sites):
    """Maps that give zeros leave the branch out for Hugging Face too."""
    short = copy.deepcopy(backbone)
    for site in sites:
        layer = short.model.layers[site // 2]
        (layer.mlp.down_proj if site % 2 else layer.self_attn.o_proj).weight.data.zero_()
    return short


@torch.no_grad()
@pytest.mark.parametrize("executor", ["masked", "packed"])
def test_named_branches(make_model, random_text, executor):
    """Logits and texts are those of the Hugging Face model whose named branches give nothing."""
    model, ids = make_model("static_depth[branches=3m+1a]").eval(), random_text(3, 12)
    model.executor = executor
    for count, sites in ((1, {7}), (2, {7, 2})):
        model.saving = count / (2 * LAYERS)
        short = _without_branches(model.backbone_model, sites)
        torch.testing.assert_close(model(ids).logits, short(ids).logits, atol=1e-5, rtol=1e-5)
        assert model.compute_report()["saved"]["tokens"] == pytest.approx(count / (2 * LAYERS))
    how = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(ids, **how), short.generate(ids, **how))
    assert described(model.method.skippable_sites) == "attention of layer 1, MLP of layer 3"


def test_a_branch_is_scaled_in_place_of_what_it_adds(make_backbone, batch):
    """By the least-squares factor between the streams before and after it, of the Hugging Face model's hooks."""
    backbone, seen = make_backbone("llama"), []
    layer, real = backbone.model.layers[1], batch["attention_mask"].bool()
    for part in (layer, layer.post_attention_layernorm):
        part.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        backbone(batch["input_ids"], attention_mask=batch["attention_mask"])
    before, after = (states[real] for states in seen)
    model = AdaptiveModel.build(backbone, "static_depth[branches=1a,compensate=scale]").eval()
    model.calibrate([batch], [1 / (2 * LAYERS)])
    expected = float((before * after).sum() / before.square().sum())
    assert float(model.method.fitted["scales"][2]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 8, 16])
def test_layers_are_spread_and_the_ends_go_last(make_model, make_backbone, layers):
    model = make_model("static_depth", backbone=make_backbone("llama", num_hidden_layers=layers))
    for count in range(layers + 1):
        model.dial = count
        skipped = model.method.skipped_layers()
        assert len(skipped) == count
        assert skipped <= set(range(layers))
        if layers > 1:
            assert (layers - 1 in skipped) == (count > max(0, layers - 2))
            assert (0 in skipped) == (count == layers)
    if layers == 16:
        model.dial = 4
        assert model.method.skipped_layers() == {2, 6, 9, 13}


def test_dial_is_the_nearest_number_of_layers(shared_model):
    method = shared_model("static_depth").method
    assert [method.dial_for(saving) for saving in (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)] == [0, 0, 1, 1, 2, 4]


def _padded_left(batch):
    """The same texts with their padding in front."""
    turned = {name: values.clone() for name, values in batch.items()}
    for row, length in enumerate(batch["attention_mask"].sum(dim=1).tolist()):
        for name in batch:
            turned[name][row] = batch[name][row].roll(LENGTH - length)
    return turned


def _measured(model, batch, ask):
    """What `ask(text)` gives of a text as the model reads it."""
    found = []
    let_measure(model, [batch], lambda text: found.append(ask(text)))
    return found[0]


def _sets(table):
    return [set(row.nonzero()[:, 0].tolist()) for row in table]


@torch.no_grad()
def test_influence_is_that_of_the_blocks_of_the_hugging_face_model(make_backbone, batch):
    """T-SG2, T-SG5: of what enters and leaves each block, real tokens alone; the final norm has no say."""
    backbone = make_backbone("llama")
    model, real = AdaptiveModel.build(backbone, "static_depth[rule=bi]").eval(), batch["attention_mask"].bool()
    seen = []
    for layer in backbone.model.layers:
        layer.register_forward_hook(lambda _, given, out: seen.append((given[0], out)))
    backbone(batch["input_ids"], attention_mask=batch["attention_mask"])
    expected = [1 - float(functional.cosine_similarity(*pair, dim=-1)[real].mean()) for pair in seen]
    assert _measured(model, batch, block_influence).tolist() == pytest.approx(expected, rel=1e-4)
    backbone.model.norm.weight.mul_(torch.linspace(-3, 3, backbone.config.hidden_size))
    assert _measured(model, batch, block_influence).tolist() == pytest.approx(expected, rel=1e-4)
    model.calibrate([batch], [0.5])
    order = torch.tensor(expected).argsort().tolist()
    assert _sets(model.method.fitted["chosen"]) == [set(order[:count]) for count in range(LAYERS + 1)]


@torch.no_grad()
def test_the_loss_is_that_of_what_continues_the_prompts(shared_model, batch):
    model = shared_model("static_depth[rule=ppl]")
    ids, predicted = batch["input_ids"], batch["continuation_mask"][:, 1:]
    logits = model.backbone_model(ids, attention_mask=batch["attention_mask"]).logits[:, :-1]
    expected = float(functional.cross_entropy(logits[predicted], ids[:, 1:][predicted]))
    assert _measured(model, batch, lambda text: text.loss()) == pytest.approx(expected, rel=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("rule", RULES)
def test_padding_and_order_do_not_matter(make_backbone, batch, rule):
    """T-BP4: texts padded on the other side, and in another order, give the same sets and the same loss."""
    model = AdaptiveModel.build(make_backbone("llama"), f"static_depth[rule={rule}]").eval()
    found = []
    other = {name: values.flip(0) for name, values in _padded_left(batch).items()}
    for one in (batch, other):
        model.calibrate([one], [0.5])
        found.append((_sets(model.method.fitted["chosen"]), _measured(model, one, lambda text: text.loss())))
    assert found[0][0] == found[1][0]
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("rule", RULES)
def test_an_identity_layer_goes_first(make_backbone, batch, rule):
    """T-BP5, T-SG1: leaving it out keeps the base's loss, and its influence and angle are 0. Rules that go by the loss
    take another one first where that lowers it.
    """
    backbone = make_backbone("llama")
    for projection in (backbone.model.layers[1].self_attn.o_proj, backbone.model.layers[1].mlp.down_proj):
        projection.weight.zero_()
    model = AdaptiveModel.build(backbone, f"static_depth[rule={rule}]").eval()
    base = _measured(model, batch, lambda text: text.loss())
    model.calibrate([batch], [0.5])
    losses = {}
    for layer in range(LAYERS):
        model.method._tried = frozenset([layer])
        losses[layer] = _measured(model, batch, lambda text: text.loss())
    model.method._tried = None
    assert losses[1] == pytest.approx(base, rel=1e-6)
    best = min(losses, key=losses.get) if rule in ("ppl", "search") else 1
    assert _sets(model.method.fitted["chosen"])[1] == {best}


def test_a_rule_has_to_be_asked_before_its_dial_skips(make_backbone, batch, random_text):
    model = AdaptiveModel.build(make_backbone("llama"), "static_depth[rule=bi]").eval()
    with pytest.raises(UsageError, match=r"Call model\.calibrate"):
        model.saving = 0.5
    model.calibrate([batch], [0.5])
    model.saving = 0.5
    with torch.no_grad():
        model.backbone_model.model.layers[0].mlp.down_proj.weight.mul_(2.0)
        with pytest.raises(UsageError, match="the weights of this"):
            model(random_text(1, 5))


def test_healing_leaves_out_what_was_picked_before_it(make_backbone, batch, tmp_path, random_text):
    """The rule is asked of the pretrained model; a text read afterwards, and a file in between, change nothing."""
    model = AdaptiveModel.build(make_backbone("llama"), "static_depth[rule=bi,trained=true]").train()
    model.method.target = 0.5
    model.begin_step(10, 10)
    ids = random_text(2, 9)
    with pytest.raises(UsageError, match=r"Call model\.prepare_training"):
        model(ids, labels=ids)
    model.prepare_training([batch])
    picked = _sets(model.method.chosen)
    assert model.training and model.method.skipped_layers() == picked[2]
    model(ids, labels=ids).loss.backward()
    for number, layer in enumerate(model.backbone_model.model.layers):
        assert (layer.mlp.down_proj.weight.grad is None or not layer.mlp.down_proj.weight.grad.any()) == (
            number in picked[2]
        )
    with torch.no_grad():  # the trained model would pick others
        for parameter in model.backbone_model.model.layers[0].parameters():
            parameter.mul_(0.01)
    model.save_pretrained(tmp_path)
    loaded = AdaptiveModel.from_pretrained(tmp_path)
    assert not loaded.needs_calibration
    loaded.dial = 2
    assert loaded.method.skipped_layers() == picked[2]


def test_pricing_a_target_picks_the_layers(make_backbone, batch):
    model = AdaptiveModel.build(make_backbone("llama"), "static_depth[rule=angular,trained=true]").train()
    target = price(model, [batch], 0.5, "tokens")
    assert target.tokens == 0.5 and model.training
    assert [len(one) for one in _sets(model.method.chosen)] == list(range(LAYERS + 1))


def test_training_gives_nothing_back_and_ends_with_what_is_judged(make_model):
    model, sets = make_model("static_depth[trained=true,unit=branch]").train(), []
    model.method.target = 0.5
    for step in range(1, 21):
        model.begin_step(step, 20)
        sets.append(model.method.skipped_layers())
    model.eval().saving = 0.5
    assert not sets[0] and all(one <= then for one, then in zip(sets, [*sets[1:], sets[-1]], strict=True))
    assert sets[-1] == model.method.skipped_layers()


@torch.no_grad()
@pytest.mark.parametrize("unit", ["layer", "branch"])
@pytest.mark.parametrize("rule", ["every", *RULES])
@pytest.mark.parametrize("trained", [False, True])
def test_a_rule_leaves_out_whole_layers_or_branches(make_backbone, random_text, batch, rule, unit, trained):
    """T-BP2: its sets have as many as the dial says, and the logits are those of the Hugging Face model without them; a
    branch that adds next to nothing is the first to go by `bi` and `angular`.
    """
    backbone, ids = make_backbone("llama"), random_text(3, 12)
    backbone.model.layers[2].self_attn.o_proj.weight.data.mul_(1e-4)
    spec = f"static_depth[rule={rule},unit={unit},trained={trained}]".lower()
    model = AdaptiveModel.build(backbone, spec).eval()
    if rule != "every":
        model.prepare_training([batch])
        model.calibrate([batch], [0.5])
    units, without = (LAYERS, _without) if unit == "layer" else (2 * LAYERS, _without_branches)
    for count in range(0, units, 3 if rule == "search" and unit == "branch" else 1):
        model.dial = count
        chosen = model.method.skipped_layers()
        assert len(chosen) == count
        assert unit == "layer" or count != 1 or rule not in ("bi", "angular") or chosen == {4}
        torch.testing.assert_close(model(ids).logits, without(backbone, chosen)(ids).logits, atol=1e-5, rtol=1e-5)
        assert model.compute_report()["saved"]["tokens"] == pytest.approx(count / units)
