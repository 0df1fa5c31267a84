"""A model comes from the hub, as which a folder stands in here, and has a card that is told there."""

import pytest
import torch
import yaml

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.hub import HubAnswer
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.saving import model_card


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder with a folder for each repository."""
    home = tmp_path / "hub"

    def snapshot_download(name):
        if not (home / name).is_dir():
            raise OSError("404: Repository Not Found")
        return str(home / name)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    monkeypatch.setattr("adaptive_bench.hub.ask", lambda: HubAnswer("https://hub", True, "status 200"))
    return home


def test_a_model_comes_back_as_it_was(hub, make_model, make_backbone, random_text):
    """With its calibration."""
    model, ids = make_model("gateskip", backbone=make_backbone("llama")), random_text(2, 9)
    model.save_pretrained(hub / "user" / "skips")
    loaded = AdaptiveModel.from_pretrained("user/skips")
    for each in (model, loaded):
        each.saving = 0.3
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-5)


def test_the_card_names_base_method_and_licence(make_model, make_backbone, tmp_path):
    """The licence is the one that the card of the base model names, where it is here."""
    backbone = make_backbone("llama")
    (tmp_path / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Base\n")
    backbone.name_or_path = str(tmp_path)
    card = model_card(make_model("gateskip", backbone=backbone), title="mine", base=None)
    _, front, text = card.split("---\n", 2)
    assert yaml.safe_load(front)["license"] == "apache-2.0" and 'AdaptiveModel.from_pretrained("mine")' in text
    (tmp_path / "README.md").write_text("no front matter")
    _, front, _ = model_card(make_model("dense", backbone=backbone), title="mine", base="owner/base").split("---\n", 2)
    about = yaml.safe_load(front)
    assert about["base_model"] == "owner/base" and "dense" in about["tags"] and "license" not in about


def test_what_the_hub_says_is_passed_on(hub):
    with pytest.raises(EnvironmentProblem, match=r"'user/none' is no folder here.*Repository Not Found"):
        AdaptiveModel.from_pretrained("user/none")


def test_a_path_with_a_mistake_is_not_looked_up_in_silence(tmp_path, monkeypatch):
    """Where the first half of what looks like a hub id is a folder here."""
    off = HubAnswer("https://hub", False, "switched off by HF_HUB_OFFLINE", is_off=True)
    monkeypatch.setattr("adaptive_bench.hub.ask", lambda: off)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(EnvironmentProblem, match=r"is no folder here.*AdaptiveModel\.load"):
        AdaptiveModel.from_pretrained("runs/gateskip")
    with pytest.raises(EnvironmentProblem, match=r"'owner/gateskip' cannot be read"):
        AdaptiveModel.from_pretrained("owner/gateskip")
