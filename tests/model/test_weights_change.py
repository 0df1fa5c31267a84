"""What is made from weights (copies in another layout, tables, prices, thresholds) never outlives them."""

import copy

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.stored_calibration import Snapshot


def shifted(model, by=0.05):
    return {name: value + by if value.is_floating_point() else value for name, value in model.state_dict().items()}


def load(model):
    model.load_state_dict(shifted(model))


def to_every_weight(change):
    def changed(model):
        for parameter in model.backbone_model.parameters():
            change(parameter)

    return changed


def step_of(fused):
    def step(model):
        # The default eps is 0 in half precision, where a small gradient would then make NaN.
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, eps=1e-3, fused=fused)
        ids = torch.arange(5, 20)[None]
        with torch.enable_grad():
            model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def merge_adapters(model):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    peft.get_peft_model(model.backbone_model, config).merge_and_unload()
    model.backbone_model.requires_grad_(True)  # peft froze it, and a step may follow


def replace_a_layer(model):
    layers = model.backbone_model.model.layers
    layers[1] = copy.deepcopy(layers[0])
    layers[1].self_attn.layer_idx = 1


def replace_all_layers(model):
    decoder = model.backbone_model.model
    decoder.layers = torch.nn.ModuleList(copy.deepcopy(layer) for layer in decoder.layers)
    load(model)


def narrow_an_mlp(model):
    mlp = model.backbone_model.model.layers[1].mlp
    for name in ("gate_proj", "up_proj"):
        kept = getattr(mlp, name).weight.data[:8].clone()
        setattr(mlp, name, torch.nn.Linear(kept.shape[1], 8, bias=False, dtype=kept.dtype))
        getattr(mlp, name).weight.data.copy_(kept)
    kept = mlp.down_proj.weight.data[:, :8].clone()
    mlp.down_proj = torch.nn.Linear(8, kept.shape[0], bias=False, dtype=kept.dtype)
    mlp.down_proj.weight.data.copy_(kept)


def tie(model):
    model.backbone_model.config.tie_word_embeddings = True
    model.tie_weights()


CHANGES = {
    "load": load,
    "load and assign": lambda model: model.backbone_model.load_state_dict(shifted(model.backbone_model), assign=True),
    "write in place": torch.no_grad()(to_every_weight(lambda weight: weight.copy_(weight * 1.1))),
    "write data": to_every_weight(lambda weight: weight.data.add_(0.05)),
    "set data": to_every_weight(lambda weight: setattr(weight, "data", weight.data * 1.1)),
    "optimizer": step_of(fused=False),
    "fused optimizer": step_of(fused=True),
    "merge adapters": merge_adapters,
    "to half": lambda model: model.half(),
    "to bfloat16": lambda model: model.backbone_model.to(torch.bfloat16),
    "there and back": lambda model: model.to(torch.bfloat16).to(torch.float32),
    "replace a layer": replace_a_layer,
    "replace all layers": replace_all_layers,
    "narrow an MLP": narrow_an_mlp,
    "tie": tie,
    "resize": lambda model: model.backbone_model.resize_token_embeddings(120, mean_resizing=False),
}


@torch.no_grad()
def use(model, ids):
    """Logits of a prompt and of three decoding steps, and what the ledger has of them."""
    model.reset_ledger()
    output = model(ids[:, :6], use_cache=True)
    found = [output.logits]
    for place in range(6, 9):
        output = model(ids[:, place : place + 1], past_key_values=output.past_key_values, use_cache=True)
        found.append(output.logits)
    return torch.cat(found, dim=1), model.compute_report()["counts"]


@settings(max_examples=24, deadline=None)
@given(st.lists(st.sampled_from(list(CHANGES)), min_size=1, max_size=3))
@example(["to half", "optimizer"])
@example(["tie", "resize"])
@example(["replace all layers", "narrow an MLP"])
@example(["there and back"])
def test_a_used_model_is_as_if_it_were_new(make_backbone, random_text, changes):
    """Whatever happens to the weights of a model that has written before, it equals one made of them just now."""
    model, ids = AdaptiveModel.build(make_backbone("llama"), "random_skip").eval(), random_text(5, 9)
    for change in changes:
        model.saving = 0.3
        use(model, ids)
        CHANGES[change](model)
    fresh = AdaptiveModel.build(model.backbone_model, "random_skip").eval()
    fresh.saving = 0.3
    (ours, our_counts), (theirs, their_counts) = use(model, ids), use(fresh, ids)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    assert our_counts == their_counts


def test_what_was_booked_keeps_its_price(make_backbone, random_text):
    """Bytes of a call in fp32 and of one in bf16 add up."""
    model, ids = AdaptiveModel.build(make_backbone("llama"), "random_skip").eval(), random_text(2, 9)
    model(ids)
    first = model.compute_report()
    model.to(torch.bfloat16)
    model(ids)
    both = model.compute_report()
    for key in ("weight_bytes", "dense_weight_bytes"):
        assert both["counts"]["prefill"][key] == 1.5 * first["counts"]["prefill"][key]
    assert both["saved"] == pytest.approx(first["saved"])


@pytest.mark.parametrize("spec", ["gateskip", "mod", "skiplayer", "free", "calm", "router_tuned_mod"])
def test_a_method_stays_in_fp32(spec, make_backbone, random_text):
    """A model that is turned to bf16 equals one built on a backbone in bf16: the scores are those of fp32."""
    model = AdaptiveModel.build(make_backbone("llama"), spec, seed=3).eval().to(torch.bfloat16)
    other = AdaptiveModel.build(make_backbone("llama").to(torch.bfloat16), spec, seed=3).eval()
    (ours, counts), (theirs, their_counts) = use(model, random_text(5, 9)), use(other, random_text(5, 9))
    assert torch.equal(ours, theirs) and counts == their_counts and model.dtype == torch.bfloat16
    assert {parameter.dtype for parameter in model.method.parameters()} <= {torch.float32}


CALIBRATED = ["gateskip", "calm"]  # thresholds; a dial that is solved for
MOVES = {"to half", "to bfloat16"}


@pytest.mark.parametrize("spec", CALIBRATED)
@pytest.mark.parametrize("change", sorted(CHANGES.keys() - {"narrow an MLP"}))  # transformers cannot load that one
def test_a_calibration_ends_with_its_weights(change, spec, make_model, make_backbone, random_text, tmp_path):
    """Other values: what was measured is forgotten, and said to be. Another type: it holds."""
    model = make_model(spec, backbone=make_backbone("llama"))
    model.saving = 0.3
    model(random_text(2, 12))
    CHANGES[change](model)
    if change in MOVES:
        assert model.saving == pytest.approx(0.3, abs=0.1)
        return
    with pytest.raises(UsageError, match="calibrate"):
        model.saving = 0.3
    model.save_pretrained(tmp_path / "saved")
    with pytest.raises(UsageError, match="calibrate"):
        AdaptiveModel.from_pretrained(tmp_path / "saved").saving = 0.3


def test_a_dial_that_was_set_before_is_refused_once_its_thresholds_are_stale(make_model, make_backbone, random_text):
    """The error says what happened; after another calibration all is well."""
    model, ids = make_model("gateskip", backbone=make_backbone("llama")), random_text(8, 30)
    model.saving = 0.3
    load(model)
    with pytest.raises(UsageError, match="weights of this gateskip have changed"):
        model(ids)
    with pytest.raises(UsageError, match="calibrated"):
        model(ids)
    mask = torch.ones_like(ids)
    model.calibrate([{"input_ids": ids, "attention_mask": mask, "continuation_mask": mask}], [0.3])
    model(ids)
    assert model.saving == pytest.approx(0.3)


def test_a_later_calibration_does_not_join_an_earlier_one_of_other_weights(make_model, make_backbone, random_text):
    model, ids = make_model("gateskip", backbone=make_backbone("llama")), random_text(8, 30)
    load(model)
    mask = torch.ones_like(ids)
    model.calibrate([{"input_ids": ids, "attention_mask": mask, "continuation_mask": mask}], [0.2])
    assert model.method.thresholds.shares.max() == pytest.approx(model.method.skip_share or 0.2, abs=0.1)
    with pytest.raises(UsageError, match="calibrated"):
        model.saving = 0.45


def test_stored_calibrations_end_with_the_weights_beside_them(make_model, make_backbone, random_text, tmp_path):
    model = make_model("gateskip", backbone=make_backbone("llama"))
    folder = tmp_path / "saved"
    model.save_pretrained(folder)
    model.store_calibration(folder, "pooled", {0.3: model.method.dial_for(0.3)}, "text")
    assert (folder / "calibration").is_dir()
    load(model)
    model.save_pretrained(folder)
    assert not (folder / "calibration").exists()
    with pytest.raises(UsageError, match="calibrated"):
        AdaptiveModel.from_pretrained(folder).saving = 0.3


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    st.booleans(),
)
def test_a_snapshot_sees_every_counted_write_and_any_dense_one(shape, dtype, counted):
    tensor = torch.zeros(shape).to(dtype)
    snapshot = Snapshot([tensor])
    assert snapshot.holds([tensor])
    if counted:
        tensor.view(-1)[-1] = 1.0
    else:
        tensor.data += 1.0
    assert not snapshot.holds([tensor])


def test_a_snapshot_of_no_number():
    """Weights that are NaN have not changed by being so."""
    tensor = torch.tensor([1.0, float("nan")])
    assert Snapshot([tensor]).holds([tensor])
    with torch.inference_mode():
        other = torch.zeros(3)
    assert Snapshot([other]).holds([other]) and not Snapshot([other]).holds([tensor])


def test_a_copy_of_a_model_is_calibrated_too_and_shares_no_weights(make_model, make_backbone, random_text):
    """And a copy of one whose weights changed is not."""
    model, ids = make_model("gateskip", backbone=make_backbone("llama")), random_text(2, 9)
    copied, before = copy.deepcopy(model), model(ids).logits.clone()
    copied.saving = 0.3
    load(copied)
    assert torch.equal(model(ids).logits, before)
    with pytest.raises(UsageError, match="calibrated"):
        copy.deepcopy(copied).saving = 0.3
