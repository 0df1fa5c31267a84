"""What a model is taken from: a folder, a name, a plugin's function; and what of it is refused, with the way out."""

import os
import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import GatedRepoError
from safetensors.torch import load_file, save_file

from adaptive_bench import registry
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, PluginFault
from adaptive_bench.hub import HubAnswer
from adaptive_bench.runs import preflight
from adaptive_bench.runs.backbone_source import empty_model, find_backbone, find_device
from adaptive_bench.runs.model_checks import model_facts


def test_a_folder_is_found_by_what_is_in_it_and_other_weights_are_another_model(model_folder, tmp_path):
    here, copy = find_backbone(str(model_folder)), shutil.copytree(model_folder, tmp_path / "copy")
    (copy / "README.md").write_text("about this model")
    assert find_backbone(str(copy)).fingerprint == here.fingerprint
    assert here.weight_bytes > 0 and here.load_model().dtype == torch.float32
    assert here.load_tokenizer().eos_token == "</s>"
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    assert find_backbone(str(copy)).fingerprint != here.fingerprint
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_of_the_hub_a_gated_and_a_quantized_model_say_what_to_do(monkeypatch, changed_model):
    def refuse(*_):
        response = SimpleNamespace(headers={}, request=None)
        raise GatedRepoError("401 Client Error.\n\nCannot access gated repo for url x.", response=response)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    monkeypatch.setattr("adaptive_bench.hub.ask", lambda: HubAnswer("https://hub", True, "status 200"))
    with pytest.raises(EnvironmentProblem, match=r"'some/model' is gated.*HF_TOKEN.*or name a folder"):
        find_backbone("some/model")
    file = changed_model(quantization_config={"quant_method": "gptq"}) / "config.json"
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_: str(file))
    with pytest.raises(EnvironmentProblem, match=r"of 'some/quantized' has a quantization_config .*gptq"):
        find_backbone("some/quantized")


@pytest.mark.parametrize("folder", [None, "/none"])
def test_a_registered_model_is_a_function_that_gives_a_folder(folder, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("models", "mine")(lambda: folder)
    with pytest.raises(PluginFault, match=f"a function without arguments .*, got {folder!r} from 'mine'"):
        find_backbone("mine")


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 123\n"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "model.safetensors").rename(folder / "x.bin"), "no file named model.safetensors"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), r"adapter_config\.json .* merge"),
        (lambda folder: (folder / "model.safetensors").write_text(POINTER), "after a clone with Git LFS call `git lfs"),
        (lambda folder: os.truncate(folder / "model.safetensors", 1000), "Copy or save the model again"),
        (lambda folder: (folder / "config.json").write_text(POINTER), "after a clone with Git LFS call `git lfs pull`"),
    ],
    ids=["no safetensors", "adapter", "weights not fetched", "cut off", "config not fetched"],
)
def test_files_that_are_no_model_are_refused(changed_model, change, said):
    change(folder := changed_model())
    with pytest.raises(EnvironmentProblem, match=said):
        model_facts(str(folder))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"quantization_config": {"quant_method": "gptq"}}, r"'gptq'.*Dequantize.*remove that entry.*--quantize"),
        ({"hidden_act": "foo"}, r"KeyError: 'foo'\. Correct the file"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "two"}}, r"TypeError: .*\. Correct the file"),
        ({"attn_implementation": "flash_attention_2"}, r"(?i)flash.*(Correct the file|attn_implementation)"),
    ],
)
def test_a_config_of_a_model_that_cannot_be_built_is_no_defect_of_ours(changed_model, entry, said):
    with pytest.raises(AdaptiveBenchError, match=said) as raised:
        model_facts(str(changed_model(**entry)))
    assert "report" not in str(raised.value) and "--debug" not in str(raised.value)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_config_may_ask_for_attention_that_takes_any_mask_and_for_no_quantization(changed_model, attention):
    source = find_backbone(changed_model(attn_implementation=attention, quantization_config=None))
    assert empty_model(source).config._attn_implementation == attention and source.load_model()


def test_a_saved_adaptive_model_is_no_plain_one(shared_model, tmp_path):
    shared_model("dense").save_pretrained(tmp_path / "saved")
    with pytest.raises(EnvironmentProblem, match="this saved adaptive model was trained from"):
        find_backbone(tmp_path / "saved")


# Which tensors the files have: what is looked at without their values, and what loading them says.


@pytest.fixture
def edited(changed_model):
    """`edited(change, **config)`: the tiny model with other tensors, and other values in its config.json."""

    def make(change=dict, **config):
        folder = changed_model(**config)
        weights = folder / "model.safetensors"
        save_file(change(load_file(weights)), weights, metadata={"format": "pt"})
        return folder

    return make


def without(name):
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name}


def with_one(name):
    return lambda tensors: tensors | {name: torch.zeros(2, 2)}


def prefixed(prefix):
    return lambda tensors: {prefix + key: tensor for key, tensor in tensors.items()}


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "gemma2"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_tensors_of_every_family_are_all_known(make_backbone, tmp_path, family, tied):
    make_backbone(family, tie_word_embeddings=tied).save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1 and model_facts(str(tmp_path)).unused == ()
    assert find_backbone(tmp_path).load_model()


SHAPE = r"(embed_tokens|lm_head)\.weight of .* has \[\d+, \d+\] in place of \[77, \d+\]"


@pytest.mark.parametrize(
    ("change", "config", "said"),
    [
        (without("model.norm.weight"), {}, r"lack 1 \(the first: model\.norm\.weight\)"),
        (prefixed("module."), {}, r"lack \d+ .* and have \d+ others \(the first: module\."),
        (dict, {"vocab_size": 77}, SHAPE),
        # A model that is cut short is not measured as the whole one.
        (dict, {"num_hidden_layers": 1}, r"1 layers\) has no place for \d+ of them \(the first: mod"),
        (with_one("model.layers.0.self_attn.q_proj.bias"), {}, "no place for 1 of them"),
        (with_one("model.layers.0.mlp.up_proj.lora_A.weight"), {}, "no place for 1 of them"),
    ],
    ids=["missing", "prefix", "shape", "cut short", "bias", "adapter"],
)
def test_tensors_that_do_not_fit_are_refused_before_a_run_and_where_they_are_read(edited, change, config, said):
    folder = edited(change, **config)
    for look in (lambda: model_facts(str(folder)), lambda: find_backbone(folder).load_model()):
        with pytest.raises(EnvironmentProblem, match=said):
            look()


def test_a_decoder_without_its_prefix_is_read_all_the_same(edited):
    def bare(tensors):
        return {key.removeprefix("model."): tensor for key, tensor in tensors.items()}

    assert model_facts(str(edited(bare))).unused == ()


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
    with pytest.raises(EnvironmentProblem, match=r"cannot be read: .*no file named model\.safetensors"):
        model_facts(str(folder))
