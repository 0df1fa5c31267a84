"""Saving and loading (X13): nothing is lost, nothing is loaded as what it is not."""

import json

import pytest
import torch

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.stored_calibration import names
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import keys


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
    monkeypatch.setattr(keys, "_version", lambda file: 99)
    with pytest.warns(UserWarning, match="another version of 'mod'"):
        model = AdaptiveModel.from_pretrained(tmp_path)
    assert not model.method.thresholds.shares.numel()


# Calibrations beside the weights: a loaded model skips at once, as the one that was calibrated did.


@pytest.fixture
def text(random_text):
    """`text(seed)`: a batch of calibration text."""

    def make(seed=99):
        ids = random_text(8, 30, seed=seed)
        mask = torch.ones_like(ids)
        return [{"input_ids": ids, "attention_mask": mask, "continuation_mask": torch.arange(30).expand_as(ids) >= 15}]

    return make


@pytest.fixture
def saved(make_backbone, make_model, tmp_path):
    """`saved(spec)`: a folder with a model that knows nothing of savings, and that model."""

    def make(spec):
        model = make_model(spec, backbone=make_backbone("llama"))
        model.begin_step(1, 1)
        model.dial = model.method.dial.skip_nothing
        model.save_pretrained(tmp_path / "model")
        return tmp_path / "model", model

    return make


def saved_share(model, ids):
    model.reset_ledger()
    with torch.no_grad():
        logits = model(ids, continuation_mask=torch.arange(ids.shape[1]).expand_as(ids) >= 5).logits
    return model.compute_report()["saved"]["tokens"], logits


@pytest.mark.parametrize(
    "spec", ["gateskip", "mod", "calm", "skiplayer", "gateskip[kv=copy_below]", "static_depth[rule=bi]"]
)
def test_a_loaded_model_skips_at_once(spec, saved, text, random_text):
    """Thresholds, dial table and the dial that was used come back: decisions are the same."""
    folder, model = saved(spec)
    model.calibrate(text(), [0.1, 0.2])
    model.saving, dial = 0.2, model.method.dial_for(0.2)
    model.store_calibration(folder, "pooled", {0.2: dial}, text="one")
    loaded = AdaptiveModel.from_pretrained(folder, spec)
    loaded.saving = 0.2
    assert loaded.dial == dial and loaded.saving == pytest.approx(model.saving)
    (ours, logits), (theirs, other) = saved_share(model, random_text(2, 20)), saved_share(loaded, random_text(2, 20))
    assert ours == theirs > 0
    torch.testing.assert_close(logits, other, atol=1e-4, rtol=0)


@pytest.mark.parametrize("spec", ["gateskip", "calm"])
def test_without_it_a_saving_is_refused(spec, saved):
    """`None` loads what was saved with the model alone; the dial stays where it was."""
    folder, _ = saved(spec)
    loaded = AdaptiveModel.from_pretrained(folder, calibration=None)
    with pytest.raises(UsageError, match="calibrat"):
        loaded.saving = 0.2
    assert loaded.saving == 0.0


def test_sweeps_add_up(saved, text):
    """What two sweeps know of the same text is joined; another text replaces it."""
    folder, model = saved("gateskip")
    model.calibrate(text(), [0.1])
    model.store_calibration(folder, "pooled", {0.1: 0.9}, text="one")
    model.begin_step(1, 1)
    model.calibrate(text(), [0.3])
    model.store_calibration(folder, "pooled", {0.3: 0.7}, text="one")
    both = AdaptiveModel.from_pretrained(folder)
    assert [round(share, 3) for share in both.method.thresholds.shares.tolist()] == [0.0, 0.1, 0.3]
    model.store_calibration(folder, "pooled", {0.3: 0.7}, text="two")
    assert len(AdaptiveModel.from_pretrained(folder).method.thresholds.shares) == 2


def test_the_dial_that_was_used_is_used_again(saved, text):
    """A solved dial's table may know a nearer value later: a record's saving keeps the dial of the record."""
    folder, model = saved("calm")
    model.calibrate(text(), [0.2])
    model.store_calibration(folder, "pooled", {0.2: model.method.dial.at(0.123)}, text="one")
    loaded = AdaptiveModel.from_pretrained(folder)
    loaded.saving = 0.2
    assert loaded.dial == pytest.approx(loaded.method.dial.at(0.123))


def test_choosing(saved, text):
    """By name; without one the pooled one, or the only one; several are not guessed at."""
    folder, model = saved("gateskip")
    model.calibrate(text(), [0.2])
    spec = MethodSpec.parse("gateskip")
    model.store_calibration(folder, "gsm8k", {}, text="one")
    assert AdaptiveModel.from_pretrained(folder).saving == 0.0 and names(folder, spec) == ["gsm8k"]
    model.store_calibration(folder, "a/b", {}, text="one")
    several = AdaptiveModel.from_pretrained(folder)
    assert several.saving == 0.0
    with pytest.raises(UsageError, match="a/b, gsm8k"):
        several.saving = 0.1
    assert AdaptiveModel.from_pretrained(folder, calibration="a/b").needs_calibration
    with pytest.raises(UsageError, match="gsm9k"):
        AdaptiveModel.from_pretrained(folder, calibration="gsm9k")
    model.store_calibration(folder, "pooled", {}, text="one")
    AdaptiveModel.from_pretrained(folder)


def test_a_damaged_file_is_named(saved, text):
    folder, model = saved("gateskip")
    model.calibrate(text(), [0.2])
    model.store_calibration(folder, "pooled", {}, text="one")
    (file,) = (folder / "calibration").rglob("*.safetensors")
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(EnvironmentProblem, match=r"pooled\.safetensors"):
        AdaptiveModel.from_pretrained(folder)


def test_a_calibration_is_stored_beside_weights_alone(make_model, text, tmp_path):
    model = make_model("gateskip")
    model.calibrate(text(), [0.1])
    with pytest.raises(UsageError, match=r"no folder .*missing.*save_pretrained"):
        model.store_calibration(tmp_path / "missing", "pooled", {0.1: 0.9}, text="one")
    assert not (tmp_path / "missing").exists()
