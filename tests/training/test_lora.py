"""LoRA: only adapters and the method train, checkpoints keep only those, and what is evaluated is plain again."""

import json

import pytest
import torch
from safetensors import safe_open
from torch import nn
from transformers import AutoModelForCausalLM

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.model import AdaptiveModel, adapters
from adaptive_bench.model.saving import Pretrained
from adaptive_bench.recipe import LoraRecipe
from adaptive_bench.training.loop import train


@pytest.fixture
def lora(recipe):
    return recipe.model_copy(update={"lora": LoraRecipe(rank=2, alpha=8, targets=("q_proj", "v_proj", "up_proj"))})


@pytest.fixture
def built(model_folder):
    def build(spec):
        return AdaptiveModel.build(AutoModelForCausalLM.from_pretrained(model_folder), spec, seed=1)

    return build


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def tensor_names(file):
    with safe_open(file, "pt") as found:
        return set(found.keys())


@pytest.mark.parametrize("spec", ["dense", "gateskip"])
def test_only_targets_and_the_method_change_and_the_maps_are_plain_again(
    spec, built, examples, tokenizer, lora, tmp_path
):
    model, before = built(spec), weights(built(spec))
    train(model, examples, tokenizer, lora, seed=1, folder=tmp_path)
    after = weights(model)
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    named = {name for name in before if any(target in name for target in lora.lora.targets) or "method." in name}
    assert after.keys() == before.keys() and changed == named
    assert {type(module) for name, module in model.backbone_model.named_modules() if name.endswith("_proj")} == {
        nn.Linear
    }


def test_the_same_seed_gives_the_same_bytes_through_an_interruption(
    built, examples, tokenizer, lora, tmp_path, monkeypatch
):
    train(built("gateskip"), examples, tokenizer, lora, seed=1, folder=tmp_path / "whole")
    model = built("gateskip")
    begin = model.begin_step
    monkeypatch.setattr(model, "begin_step", lambda step, total: 1 / 0 if step == 5 else begin(step, total))
    with pytest.raises(ZeroDivisionError):
        train(model, examples, tokenizer, lora, seed=1, folder=tmp_path / "broken")
    (resume,) = (tmp_path / "broken/resume").iterdir()
    kept = tensor_names(resume / "weights.safetensors")
    assert kept and all("lora_" in name or name.startswith("method.") for name in kept)
    train(built("gateskip"), examples, tokenizer, lora, seed=1, folder=tmp_path / "broken")
    whole, broken = ((tmp_path / name / "checkpoint") for name in ("whole", "broken"))
    for file in ("backbone/model.safetensors", "method.safetensors"):
        assert (whole / file).read_bytes() == (broken / file).read_bytes()


def test_a_checkpoint_names_the_pretrained_weights_and_keeps_what_was_trained(
    built, examples, tokenizer, lora, model_folder, tmp_path, random_text
):
    model = built("gateskip")
    train(
        model,
        examples,
        tokenizer,
        lora,
        seed=1,
        folder=tmp_path,
        pretrained=Pretrained.at(str(model_folder), None),
    )
    folder = tmp_path / "checkpoint"
    assert not (folder / "backbone").exists()
    assert all("lora_" in name for name in tensor_names(folder / "adapters/adapter_model.safetensors"))
    loaded, now = AdaptiveModel.from_pretrained(folder), weights(model)
    assert all(torch.equal(value, now[name]) for name, value in weights(loaded).items())
    assert AdaptiveModel.from_pretrained(folder, dtype=torch.bfloat16).dtype == torch.bfloat16
    with torch.no_grad():
        ids = random_text(2, 8)
        reports = []
        for each in (loaded, AdaptiveModel.build(AutoModelForCausalLM.from_pretrained(model_folder), "gateskip")):
            each.eval().reset_ledger()
            each(ids)
            reports.append({key: value for key, value in each.compute_report().items() if key != "sites"})
    assert reports[0] == reports[1], "the ledger books the linear maps of the dense model"


def test_changed_pretrained_weights_are_refused(built, examples, tokenizer, lora, model_folder, tmp_path):
    home = tmp_path / "base"
    AutoModelForCausalLM.from_pretrained(model_folder).save_pretrained(home)
    source = Pretrained.at(str(home), None)
    train(built("dense"), examples, tokenizer, lora, seed=1, folder=tmp_path / "run", pretrained=source)
    config = json.loads((home / "config.json").read_text())
    (home / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.1}))
    with pytest.raises(EnvironmentProblem, match=r"needs those of .*base.*config\.json changed or is missing"):
        AdaptiveModel.from_pretrained(tmp_path / "run/checkpoint")


def test_a_method_that_freezes_the_backbone_gets_no_adapters(built, examples, tokenizer, lora, tmp_path):
    model, before = built("gateskip[frozen=true]"), weights(built("gateskip[frozen=true]"))
    train(model, examples, tokenizer, lora, seed=1, folder=tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items() if "method." not in name)


def test_without_peft_it_says_what_to_install(built, examples, tokenizer, lora, tmp_path, monkeypatch):
    monkeypatch.setattr(adapters.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match=r"adaptive-bench\[lora\]"):
        train(built("dense"), examples, tokenizer, lora, seed=1, folder=tmp_path)
