"""Which tensors the files of a model have: what is looked at without their values, and what loading them says."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs import preflight
from adaptive_bench.runs.backbone_source import find_backbone
from adaptive_bench.runs.model_checks import model_facts


@pytest.fixture
def edited(model_folder, tmp_path):
    """`edited(change, **config)`: the tiny model with other tensors, and other values in its config.json."""

    def make(change=dict, **config):
        folder = shutil.copytree(model_folder, tmp_path / "edited")
        described = folder / "config.json"
        described.write_text(json.dumps(json.loads(described.read_text()) | config))
        weights = folder / "model.safetensors"
        save_file(change(load_file(weights)), weights, metadata={"format": "pt"})
        return folder

    return make


def refused(folder, said):
    """Both before a run and where the weights are read."""
    for look in (lambda: model_facts(str(folder)), lambda: find_backbone(folder).load_model()):
        with pytest.raises(EnvironmentProblem, match=said):
            look()


def without(name):
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name}


def with_one(name):
    return lambda tensors: tensors | {name: torch.zeros(2, 2)}


def prefixed(prefix):
    return lambda tensors: {prefix + key: tensor for key, tensor in tensors.items()}


def test_the_tensors_of_a_sound_model_are_all_known(model_folder):
    assert model_facts(str(model_folder)).unused == ()


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "gemma2"])
@pytest.mark.parametrize("tied", [True, False])
def test_of_every_family(make_backbone, tmp_path, family, tied):
    make_backbone(family, tie_word_embeddings=tied).save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1 and model_facts(str(tmp_path)).unused == ()
    assert find_backbone(tmp_path).load_model()


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.mlp.up_proj.weight"])
def test_a_tensor_that_is_missing(edited, name):
    refused(edited(without(name)), rf"lack 1 \(the first: {name}\)")


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod."])
def test_a_prefix_that_all_tensors_have(edited, prefix):
    refused(edited(prefixed(prefix)), rf"lack \d+ .* and have \d+ others \(the first: {prefix}")


def test_a_decoder_without_its_prefix_is_read_all_the_same(edited):
    def bare(tensors):
        return {key.removeprefix("model."): tensor for key, tensor in tensors.items()}

    assert model_facts(str(edited(bare))).unused == ()


def test_a_tensor_of_another_shape(edited):
    refused(edited(vocab_size=77), r"(embed_tokens|lm_head)\.weight of .* has \[\d+, \d+\] in place of \[77, \d+\]")


def test_a_model_that_is_cut_short_is_not_measured_as_the_whole_one(edited, model_folder):
    layers = json.loads((model_folder / "config.json").read_text())["num_hidden_layers"]
    said = rf"{layers - 1} layers\) has no place for \d+ of them \(the first: mod"
    refused(edited(num_hidden_layers=layers - 1), said)


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.q_proj.bias", "model.layers.0.mlp.up_proj.lora_A.weight"])
def test_what_would_change_the_decoder_is_not_left_aside(edited, name):
    refused(edited(with_one(name)), "no place for 1 of them")


def test_a_head_of_another_task_is_noted_and_old_buffers_are_not(edited, config_of):
    def more(tensors):
        old = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}
        return tensors | old | {"score.weight": torch.zeros(2, 4)}

    (note,) = preflight(config_of("dense", model=str(edited(more))), timed=False).notes
    assert "1 tensor beside the language model (the first: score.weight)" in note


def test_files_in_the_layout_of_others_are_not_read(edited):
    folder = edited()
    save_file({"tok_embeddings.weight": torch.zeros(2)}, folder / "consolidated.safetensors")
    assert model_facts(str(folder)).unused == ()
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    with pytest.raises(EnvironmentProblem, match=r"in model\.safetensors, or in the files that .* they cannot be read"):
        model_facts(str(folder))
