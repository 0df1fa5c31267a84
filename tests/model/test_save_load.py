"""Saving and loading (X13): nothing is lost, nothing is loaded as what it is not."""

import json

import pytest
import torch

from adaptive_bench import source
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens

SPECS = ["dense", "random_skip", "gateskip", "gateskip[shape=scalar,sharing=shared]@paper", "mod"]


@torch.no_grad()
def logits(model, ids):
    model.reset_ledger()
    return model(ids).logits, model.compute_report()["sites"]


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("spec", SPECS)
def test_round_trip(spec, family, make_model, make_backbone, random_text, tmp_path):
    """X13, X12: weights and thresholds come back bit for bit, with spec, seed, dial, masks and logits.

    (Logits to rounding: files are mapped at other memory alignments, and matrix products round accordingly.)
    """
    model, ids = make_model(spec, backbone=make_backbone(family)), random_text(2, 10)
    model.dial = model.method.dial_for(min(0.3, model.method.max_saved_tokens))
    model.save_pretrained(tmp_path)
    loaded = AdaptiveModel.from_pretrained(tmp_path, attn_implementation=model.backbone.config._attn_implementation)
    assert (loaded.spec, loaded.dial, loaded.method.seed, loaded.training) == (
        model.spec,
        model.dial,
        model.method.seed,
        False,
    )
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    if model.method.thresholds is not None:
        for name, value in model.method.thresholds.state().items():
            assert torch.equal(loaded.method.thresholds.state()[name], value), name
    (ours, our_sites), (theirs, their_sites) = logits(model, ids), logits(loaded, ids)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    assert our_sites == their_sites


def test_only_safetensors_and_json_are_written(make_model, make_backbone, tmp_path):
    """House rule: no pickle."""
    make_model("gateskip", backbone=make_backbone("llama")).save_pretrained(tmp_path)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".safetensors"}


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        ("gateskip", "gateskip[rule=exact_share]@paper"),
        ("gateskip[rule=exact_share]@paper", "gateskip[kv=evict]"),
        ("gateskip@paper", "gateskip[kv=evict]@paper"),
        ("dense", "random_skip"),
        ("dense", "random_skip[kv=evict]"),
        ("mod", "mod[route_by=router]@paper"),
        ("mod[route_by=predictor]", "mod@paper"),
        ("mod[capacity=0.50]", "mod[capacity=0.5]"),
        ("random_skip[trained=false]", "dense"),
    ],
)
def test_another_spec_of_the_same_training(saved, loaded, make_model, make_backbone, random_text, tmp_path):
    """Weights trained once serve every spec that differs at inference only."""
    model = make_model(saved, backbone=make_backbone("llama"))
    model.save_pretrained(tmp_path)
    other = AdaptiveModel.from_pretrained(tmp_path, loaded)
    assert str(other.spec) == loaded and other.dial == other.method.dial.skip_nothing
    for name, value in model.method.state_dict().items():
        assert torch.equal(other.method.state_dict()[name], value)
    if other.method.thresholds is not None:  # measured under the other spec, so not taken over
        other.dial = other.method.dial_for(0.1)
        with pytest.raises(UsageError, match="calibrate"):
            new_tokens(other, random_text(1, 4), max_new_tokens=2)


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        ("dense", "gateskip"),
        ("gateskip", "mod"),
        ("gateskip", "gateskip[shape=scalar]"),
        ("gateskip", "dense"),
        ("dense", "random_skip[trained=true]"),  # no other shapes in these, but another training
        ("gateskip", "gateskip[loss=l1]"),
        ("mod", "mod[capacity=0.125]"),
    ],
)
def test_weights_that_do_not_fit(saved, loaded, make_model, make_backbone, tmp_path):
    """X13: a spec that needs other weights is refused; both specs are named."""
    make_model(saved, backbone=make_backbone("llama")).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=saved):
        AdaptiveModel.from_pretrained(tmp_path, loaded)


def test_folders_that_are_not_ours(shared_backbone, tmp_path):
    """The error names the folder and what is missing."""
    shared_backbone("llama").save_pretrained(tmp_path / "plain")
    for folder, kind in ((tmp_path / "plain", EnvironmentProblem), (tmp_path / "missing", UsageError)):
        with pytest.raises(kind, match=r"adaptive\.json"):
            AdaptiveModel.from_pretrained(folder)


@pytest.mark.parametrize("part", ["adaptive.json", "method.safetensors", "backbone/config.json", "backbone"])
@pytest.mark.parametrize("damage", ["missing", "cut short", "of another kind"])
def test_incomplete_and_damaged_folders(part, damage, make_model, make_backbone, tmp_path):
    """The error names the folder and the part, whatever the library underneath says."""
    make_model("gateskip", backbone=make_backbone("llama")).save_pretrained(tmp_path)
    file = tmp_path / part if part != "backbone" else tmp_path / "backbone" / "model.safetensors"
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:20] if damage == "cut short" else b"[1, 2]")
    with pytest.raises(EnvironmentProblem, match=part.split("/")[0]) as caught:
        AdaptiveModel.from_pretrained(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("part", ["method.safetensors", "backbone/model.safetensors"])
def test_a_flipped_byte_is_noticed(part, make_model, make_backbone, tmp_path):
    """The file is readable, and would give other numbers."""
    make_model("gateskip", backbone=make_backbone("llama")).save_pretrained(tmp_path)
    content = bytearray((tmp_path / part).read_bytes())
    content[-3] ^= 1
    (tmp_path / part).write_bytes(content)
    with pytest.raises(EnvironmentProblem, match=part):
        AdaptiveModel.from_pretrained(tmp_path)


def test_a_later_schema(make_model, make_backbone, tmp_path):
    """A folder written by a later version is refused as such."""
    make_model("dense", backbone=make_backbone("llama")).save_pretrained(tmp_path)
    about = tmp_path / "adaptive.json"
    values = json.loads(about.read_text()) | {"schema": 2}
    about.write_text(json.dumps(values))
    with pytest.raises(EnvironmentProblem, match="schema 1, got 2"):
        AdaptiveModel.from_pretrained(tmp_path)


def test_what_another_version_of_a_method_calibrated_is_left_out(shared_model, tmp_path, monkeypatch):
    shared_model("mod").save_pretrained(tmp_path)
    assert AdaptiveModel.from_pretrained(tmp_path).method.thresholds.shares.numel()
    monkeypatch.setattr(source, "_version", lambda file: 99)
    with pytest.warns(UserWarning, match="another version of 'mod'"):
        model = AdaptiveModel.from_pretrained(tmp_path)
    assert not model.method.thresholds.shares.numel()
