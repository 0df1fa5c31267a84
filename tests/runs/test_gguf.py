"""Models in a GGUF file, written here by the gguf package as llama.cpp's converter does."""

import sys

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.runs.backbone_source import empty_model, find_backbone, planned_backbone
from adaptive_bench.runs.run_checks import preflight

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed: pip install 'adaptive-bench[gguf]'")
# The reader adds <|endoftext|> where a vocabulary of bytes lacks it; those of SmolLM2 and Qwen have it.
TOKENS = ["<|endoftext|>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"]


def llama():
    """A Llama of two layers."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "max_position_embeddings": 512}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": len(TOKENS)}
    more = {"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}, "rms_norm_eps": 1e-5}
    more |= {"eos_token_id": 1, "pad_token_id": 0, "tie_word_embeddings": True, "initializer_range": 0.1}
    config = LlamaConfig(**sizes, **more)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()


def write(model, path, form="F32", change=lambda writer: None):
    """Write the model with its linear maps as `form`; gives the weights that the file holds, by their names."""
    writer, config = gguf.GGUFWriter(path, "llama"), model.config
    for name, value in {
        "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers, "feed_forward_length": config.intermediate_size,
        "head_count": config.num_attention_heads, "head_count_kv": config.num_key_value_heads,
        "layer_norm_rms_eps": config.rms_norm_eps, "rope_dimension_count": config.head_dim,
        "rope_freq_base": config.rope_parameters["rope_theta"], "vocab_size": len(TOKENS),
        "tokenizer_model": "gpt2", "token_list": TOKENS, "token_merges": ["a b"], "eos_token_id": 1, "pad_token_id": 0,
        "token_types": [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (len(TOKENS) - 2),
    }.items():  # fmt: skip
        getattr(writer, f"add_{name}")(value)
    change(writer)
    names, held = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers), {}
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":  # tied
            continue
        values, kind = weight.numpy(), gguf.GGMLQuantizationType[form if weight.dim() == 2 else "F32"]
        stored = gguf.quants.quantize(values, kind)
        held[name] = torch.from_numpy(gguf.quants.dequantize(stored, kind).copy())
        if (count := heads.get(name.split(".")[-2])) is not None:  # pairs that turn together lie side by side
            stored = stored.reshape(count, 2, -1, stored.shape[-1]).swapaxes(1, 2).reshape(stored.shape)
        writer.add_tensor(names.get_name(name, (".weight",)), np.ascontiguousarray(stored), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


@pytest.mark.parametrize("form", ["F32", "F16", "Q8_0", "Q4_0"])
def test_it_is_the_model_and_tokenizer_that_were_written_with_the_rounding_of_the_file(tmp_path, form):
    model, file = llama(), tmp_path / "tiny.gguf"
    model.load_state_dict(write(model, file, form), strict=False)
    (tmp_path / "config.json").write_text("{}")  # what lies beside it is not read
    source = find_backbone(file)
    assert source.forms == ("F32" if form == "F32" else f"{form}, F32")
    assert source.weight_bytes == 4 * sum(weight.numel() for weight in model.parameters())
    assert sum(weight.numel() for weight in empty_model(source).parameters()) == source.weight_bytes / 4
    loaded = source.load_model().eval()
    ids = torch.randint(2, len(TOKENS), (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert loaded.dtype == torch.float32
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits, rtol=0, atol=1e-5)
        ours = AdaptiveModel.build(loaded, "dense").eval()(ids).logits  # it counts as a plain model
    torch.testing.assert_close(ours, model(ids).logits, rtol=0, atol=1e-5)
    tokenizer = source.load_tokenizer()
    ids = tokenizer("so ab")["input_ids"]
    assert [TOKENS[each] for each in ids] == ["s", "o", "\u0120", "ab"]
    assert (tokenizer.decode(ids), tokenizer.eos_token, tokenizer.pad_token) == ("so ab", "</s>", "<|endoftext|>")


def test_another_file_under_its_name_is_another_model(tmp_path):
    model, file = llama(), tmp_path / "tiny.gguf"
    write(model, file)
    before = find_backbone(file)
    model.model.norm.weight.data[0] = 2.0
    write(model, file)
    assert find_backbone(file).fingerprint != before.fingerprint
    with pytest.raises(EnvironmentProblem, match="changed since"):
        planned_backbone(str(file), before.fingerprint)


def test_a_plan_says_once_what_the_weights_are(config_of, tmp_path):
    write(llama(), tmp_path / "tiny.gguf", "Q8_0")
    changes = {"model": str(tmp_path / "tiny.gguf")}
    notes = [note for note in preflight(config_of("random_skip", **changes)).notes if "GGUF" in note]
    assert len(notes) == 1 and "dequantised from GGUF (Q8_0, F32) to fp32" in notes[0]
    with pytest.raises(UsageError, match="adapters alone, for a model in Hugging Face layout, got the GGUF file"):
        preflight(config_of("gateskip", train={"lora": {}}, **changes))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.YARN), "without rope.scaling.type 'yarn'"),
        (lambda writer: writer.add_sliding_window(64), "without attention.sliding_window 64"),
        (lambda writer: writer.add_tensor("rope_freqs.weight", np.ones(8, np.float32)), "the tensor rope_freqs.weight"),
        (lambda writer: writer.add_uint16("split.count", 2), "is one file, got the first of 2"),
    ],
)
def test_what_transformers_would_pass_over_is_refused(tmp_path, change, told):
    """Llama 3.1's rotary factors, say: it would read the file without a word, and be another model."""
    write(llama(), tmp_path / "tiny.gguf", change=change)
    with pytest.raises(EnvironmentProblem, match=told):
        find_backbone(tmp_path / "tiny.gguf")


def test_a_damaged_file_is_refused_and_without_the_package_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(EnvironmentProblem, match=r"model\.gguf' cannot be read as GGUF"):
        find_backbone(tmp_path / "model.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match=r"needs the package gguf.*adaptive-bench\[gguf\]"):
        find_backbone(tmp_path / "model.gguf")
