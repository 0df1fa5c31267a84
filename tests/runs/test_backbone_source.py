import json
import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import GatedRepoError

from adaptive_bench import registry
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, PluginFault
from adaptive_bench.hub import HubAnswer
from adaptive_bench.runs.backbone_source import empty_model, find_backbone, find_device
from adaptive_bench.runs.model_checks import model_facts


@pytest.fixture
def copied(model_folder, tmp_path):
    """`copied(**config)`: a copy of the tiny model with other values in its config.json."""

    def make(**changes):
        folder = shutil.copytree(model_folder, tmp_path / "copied")
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))
        return folder

    return make


def test_a_folder_is_found_by_what_is_in_it(model_folder, tmp_path):
    here = find_backbone(str(model_folder))
    copy = shutil.copytree(model_folder, tmp_path / "copy")
    (copy / "README.md").write_text("about this model")
    assert find_backbone(str(copy)).fingerprint == here.fingerprint
    assert here.weight_bytes > 0 and here.load_model().dtype == torch.float32
    assert here.load_tokenizer().eos_token == "</s>"


def test_other_weights_are_another_model(model_folder, tmp_path):
    copy = shutil.copytree(model_folder, tmp_path / "copy")
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    assert find_backbone(str(copy)).fingerprint != find_backbone(str(model_folder)).fingerprint


def test_weights_that_are_not_safetensors_are_refused(model_folder, tmp_path):
    copy = shutil.copytree(model_folder, tmp_path / "copy")
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(EnvironmentProblem, match="Weights in another format are converted by save_pretrained"):
        model_facts(str(copy))


def test_a_gated_model_says_what_to_do(monkeypatch):
    def refuse(*_):
        response = SimpleNamespace(headers={}, request=None)
        raise GatedRepoError("401 Client Error.\n\nCannot access gated repo for url x.", response=response)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    monkeypatch.setattr("adaptive_bench.hub.ask", lambda: HubAnswer("https://hub", True, "status 200"))
    with pytest.raises(EnvironmentProblem, match=r"'some/model' is gated.*HF_TOKEN.*or name a folder"):
        find_backbone("some/model")


@pytest.mark.parametrize("folder", [None, "/none"])
def test_a_registered_model_is_a_function_that_gives_a_folder(folder, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("models", "mine")(lambda: folder)
    with pytest.raises(PluginFault, match=f"a function without arguments .*, got {folder!r} from 'mine'"):
        find_backbone("mine")


def test_auto_takes_what_is_there():
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_an_adapter_is_no_model(model_folder, tmp_path):
    copy = shutil.copytree(model_folder, tmp_path / "copy")
    (copy / "adapter_config.json").write_text("{}")
    with pytest.raises(EnvironmentProblem, match=r"adapter_config\.json .* merge"):
        find_backbone(str(copy))


def test_a_quantized_model_is_no_backbone(copied):
    folder = copied(quantization_config={"quant_method": "gptq"})
    with pytest.raises(EnvironmentProblem, match=r"'gptq'.*Dequantize.*remove that entry.*--quantize"):
        find_backbone(folder)


def test_no_quantization_is_no_entry(copied):
    assert find_backbone(copied(quantization_config=None)).load_model()


def test_of_the_hub_no_quantized_model_is_taken_either(copied, monkeypatch):
    file = copied(quantization_config={"quant_method": "gptq"}) / "config.json"
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_: str(file))
    monkeypatch.setattr("adaptive_bench.hub.ask", lambda: HubAnswer("https://hub", True, "status 200"))
    with pytest.raises(EnvironmentProblem, match=r"of 'some/quantized' has a quantization_config .*gptq"):
        find_backbone("some/quantized")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"hidden_act": "foo"}, r"KeyError: 'foo' \(hidden_act\)\. Correct the file"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "two"}}, r"TypeError: .*\. Correct the file"),
    ],
)
def test_a_config_that_transformers_cannot_build_is_no_defect_of_ours(copied, entry, said):
    with pytest.raises(EnvironmentProblem, match=said) as raised:
        empty_model(find_backbone(copied(**entry)))
    assert "report" not in str(raised.value) and "--debug" not in str(raised.value)


def test_a_config_that_asks_for_other_attention_is_refused(copied):
    with pytest.raises(AdaptiveBenchError, match=r"(?i)flash.*(Correct the file|attn_implementation)"):
        model_facts(str(copied(attn_implementation="flash_attention_2")))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_config_may_ask_for_attention_that_takes_any_mask(copied, attention):
    assert empty_model(find_backbone(copied(attn_implementation=attention))).config._attn_implementation == attention


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_that_git_lfs_has_not_fetched(copied, name):
    folder = copied()
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 123\n")
    with pytest.raises(EnvironmentProblem, match="after a clone with Git LFS call `git lfs pull`"):
        model_facts(str(folder))


@pytest.mark.parametrize("models", [("checkpoint-5",), ("checkpoint-20", "checkpoint-100", "checkpoint-30")])
def test_above_checkpoints_the_newest_is_pointed_at(model_folder, tmp_path, models):
    trained = tmp_path / "trained"
    for name in models:
        shutil.copytree(model_folder, trained / name)
    said = "/checkpoint-5'\\.$" if len(models) == 1 else "/checkpoint-100', the newest of 3 below it"
    with pytest.raises(EnvironmentProblem, match=said):
        find_backbone(trained)


@pytest.mark.parametrize("above", [".", "models--x--y"])
def test_in_the_cache_of_the_hub_the_snapshot_is_pointed_at(model_folder, tmp_path, above):
    cache = tmp_path / "hub"
    shutil.copytree(model_folder, cache / "models--x--y" / "snapshots" / "0123")
    with pytest.raises(EnvironmentProblem, match=r"Name '.*/models--x--y/snapshots/0123'\.$"):
        find_backbone(cache / above)


def test_a_saved_adaptive_model_is_no_plain_one(shared_model, tmp_path):
    shared_model("dense").save_pretrained(tmp_path / "saved")
    with pytest.raises(EnvironmentProblem, match=r"a saved adaptive model.*name the one that it was trained from"):
        find_backbone(tmp_path / "saved")
