import json
import shutil
from dataclasses import replace

import pytest
import yaml

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.methods.gateskip import GateSkip
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.saving import load_tokenizer
from adaptive_bench.runs.backbone_source import find_backbone


@pytest.mark.parametrize("spec", ["gateskip", "gateskip@paper"])
def test_an_exported_folder_is_a_model_with_a_card(spec, command, smoke_run, tmp_path):
    result = command("export-model", str(smoke_run), "-o", "shared", "--method", spec)
    assert result.exit_code == 0, result.stderr
    model = AdaptiveModel.from_pretrained(tmp_path / "shared")
    assert str(model.spec) == spec and load_tokenizer(tmp_path / "shared").eos_token_id is not None
    model.saving = 0.2
    _, front, text = (tmp_path / "shared" / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(front)["tags"] == ["adaptive-computation", "gateskip"]
    assert f"`{spec}` on a 6-layer llama" in text and 'from_pretrained("shared")' in text and "| dense" in text
    assert f"| {spec} " in text and text.count("| gateskip") == text.count(f"| {spec} ")
    again = command("export-model", str(smoke_run), "-o", "shared", "--method", spec)
    assert again.exit_code == 2 and "exists" in again.stderr


def test_without_some_layers_it_is_a_plain_model_that_a_run_takes(command, smoke_run, tmp_path):
    asked = ("export-model", str(smoke_run), "-o", "small", "--method")
    for spec, layers, told in [
        ("gateskip", 1, "a method whose dial is a number of layers, got gateskip"),
        ("static_depth", 6, "keeps at least one layer, got static_depth with 6 of 6 left out"),
    ]:
        result = command(*asked, spec, "--without-layers", str(layers))
        assert result.exit_code == 2 and told in result.said
        assert not (tmp_path / "small").exists()
    result = command(*asked, "static_depth", "--without-layers", "2")
    assert result.exit_code == 0 and "without layers 2, 4 of 6" in result.stdout
    backbone = find_backbone(str(tmp_path / "small"))
    model = backbone.load_model()
    assert len(model.model.layers) == 4 and model.config.pruned_layers == [2, 4]
    assert backbone.load_tokenizer().eos_token_id is not None


def test_of_a_backbone_of_the_hub_that_stays_as_it_is_only_its_name_is_kept(command, smoke_run, tmp_path, monkeypatch):
    from adaptive_bench.runs import backbone_source as backbones

    here = backbones.find_backbone("nano")
    hub = replace(here, name="owner/nano", location="owner/nano", revision="0" * 40)
    monkeypatch.setattr(backbones, "find_backbone", lambda name: hub)
    monkeypatch.setattr(GateSkip, "freezes_backbone", property(lambda self: True))
    monkeypatch.setattr(GateSkip, "starts_from", classmethod(lambda cls, spec: None))
    result = command("export-model", str(smoke_run), "-o", "light", "--method", "gateskip")
    assert result.exit_code == 0, result.stderr
    folder = tmp_path / "light"
    assert not (folder / "backbone").exists() and (folder / "method.safetensors").is_file()
    about = json.loads((folder / "adaptive.json").read_text())
    assert about["pretrained"] == {"location": "owner/nano", "revision": "0" * 40, "sha256": {}}
    with pytest.raises(EnvironmentProblem, match=r"needs those of 'owner/nano', but they cannot be loaded"):
        AdaptiveModel.from_pretrained(folder)


def test_a_quantized_run_is_refused_with_the_reason(command, smoke_run, tmp_path):
    (tmp_path / "other").mkdir()
    about = yaml.safe_load((smoke_run / "config.yaml").read_text())
    about["evaluation"]["quantize"] = "int8"
    (tmp_path / "other" / "config.yaml").write_text(yaml.safe_dump(about))
    result = command("export-model other -o shared --method gateskip")
    assert result.exit_code == 2 and "--quantize int8" in result.stderr and not (tmp_path / "shared").exists()


@pytest.mark.parametrize("gone", [True, False])
def test_a_calibration_that_is_lost_or_damaged_is_told(command, smoke_run, tmp_path, gone):
    shutil.copytree(smoke_run.parent.parent, copied := tmp_path / "out")
    for file in (copied / "records").glob("*/checkpoint/calibration/gateskip/*"):
        file.unlink() if gone else file.write_bytes(b"")
    result = command("export-model", str(copied / "runs" / smoke_run.name), "-o", "new", "--method", "gateskip")
    assert result.exit_code == 1 and not (tmp_path / "new").exists()
    assert ("there is none in" if gone else "A stored calibration must be readable") in result.said
