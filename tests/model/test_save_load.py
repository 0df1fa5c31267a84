"""Saving and loading (X13): nothing is lost, nothing is loaded as what it is not."""

import json

import pytest
import torch

from adaptive_bench import source
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens


def test_only_safetensors_and_json_are_written(make_model, make_backbone, tmp_path):
    """House rule: no pickle."""
    make_model("gateskip", backbone=make_backbone("llama")).save_pretrained(tmp_path)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".safetensors"}


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        ("gateskip", "gateskip[rule=exact_share]@paper"),
        ("gateskip[rule=exact_share]@paper", "gateskip[kv=evict]"),
        ("dense", "random_skip"),
        ("mod", "mod[route_by=router]@paper"),
        ("mod[capacity=0.50]", "mod[capacity=0.5]"),
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
        ("gateskip", "gateskip[shape=scalar]"),
        ("gateskip", "dense"),
        ("dense", "random_skip[trained=true]"),  # no other shapes in these, but another training
        ("gateskip", "gateskip[loss=l1]"),
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
    for folder in (tmp_path / "plain", tmp_path / "missing"):
        with pytest.raises(UsageError, match=r"adaptive\.json"):
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
