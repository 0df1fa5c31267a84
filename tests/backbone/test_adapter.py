"""What the engine reads off a Hugging Face model: costs, windows, and the paper's model sizes; and its families."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.utils.quantization_config import QuantizationMethod

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone, Site, find_family
from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.adapters import check_targets
from adaptive_bench.recipe import LoraRecipe
from adaptive_bench.testing.subject import SIZES, tiny_backbone
from adaptive_bench.testing.suite import check_specs

LLAMA_1B = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
}
GEMMA_2B = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 256000,
}


def on_meta(family, config):
    """The model without memory for its weights."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **config), attn_implementation="eager")


@pytest.mark.parametrize(
    ("family", "config", "wanted"),
    [
        ("llama", LLAMA_1B, (10.49, 2.10, 50.33, 973, 262.7)),
        ("gemma2", GEMMA_2B, (14.16, 4.72, 63.70, 2024, 589.8)),
    ],
)
def test_costs_of_the_papers_models(family, config, wanted):
    """Golden, methods.md 2.1: MMAC per token of attention, of K and V in it, of an MLP, of all layers, of the head."""
    backbone = Backbone(on_meta(family, config))
    costs = backbone.costs
    attention, layers = costs.attn_q_o + costs.attn_kv, (costs.attn_q_o + costs.attn_kv + costs.mlp).sum()
    parts = (attention[0], costs.attn_kv[0], costs.mlp[0], layers, backbone.head_macs)
    assert tuple(part / 1e6 for part in parts) == pytest.approx(wanted, rel=2e-3)


def test_dense_and_gateskip_on_llama_1b():
    """Golden: 1236 MMAC a token; vector gates at q=.15 with K,V kept leave 966 of 973 in the layers."""
    with torch.device("meta"):
        model = AdaptiveModel.build(on_meta("llama", LLAMA_1B), "gateskip")
    backbone, gates = model.backbone, sum(gate.weight.numel() for gate in model.method.gates)
    costs = backbone.costs
    layers = (costs.attn_q_o + costs.attn_kv + costs.mlp).sum()
    assert (layers + backbone.head_macs) / 1e6 == pytest.approx(1236, abs=0.5)
    kept = (0.85 * (costs.attn_q_o + costs.mlp) + costs.attn_kv).sum()
    assert (kept + gates) / 1e6 == pytest.approx(966, abs=0.5)
    assert sum(parameter.numel() for parameter in model.method.parameters()) / 1e6 == pytest.approx(134.3, abs=0.05)


@pytest.mark.parametrize(
    ("family", "windows"),
    [
        ("llama", [None] * 4),
        ("mistral", [6] * 4),
        ("qwen2", [None, None, 5, 5]),
        ("qwen3", [None] * 3),
        ("gemma2", [6, None, 6]),
    ],
)
def test_windows(family, windows, shared_backbone):
    """X10: which layers see how far."""
    assert Backbone(shared_backbone(family)).windows == windows


def test_a_model_that_transformers_quantized_is_refused(make_backbone):
    model = make_backbone("llama")
    model.quantization_method = QuantizationMethod.BITS_AND_BYTES
    with pytest.raises(UsageError, match="unquantized weights, got a model quantized by bitsandbytes"):
        AdaptiveModel.build(model, "dense")


def test_gemma_runs_eager(make_backbone):
    """Fused attention cannot soft-cap scores, so it is never used where the family does."""
    backbone = make_backbone("gemma2")
    backbone.config._attn_implementation = "sdpa"
    assert Backbone(backbone).eager


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_unsupported_attention(family, make_backbone):
    """Kernels that take no mask of ours would let tokens see what was skipped or evicted."""
    backbone = make_backbone(family)
    backbone.config._attn_implementation = "flash_attention_2"
    with pytest.raises(UsageError, match="eager, sdpa, got 'flash_attention_2'"):
        AdaptiveModel.build(backbone, "dense")


def test_sites_in_execution_order():
    """Attention before MLP, layer by layer; a whole layer stands where its attention does."""
    assert [Site(layer, branch).number for layer in (0, 1) for branch in ("attention", "mlp")] == [0, 1, 2, 3]
    assert Site(3, "layer").number == Site(3, "attention").number


# Families are registered one by one; a new one is a small file.


FAMILIES = registry.names("families")


@pytest.mark.parametrize("family", FAMILIES)
def test_norms_are_where_the_family_says(family):
    backbone = Backbone(tiny_backbone(family))
    for branch in ("attention", "mlp"):
        site = Site(1, branch)
        before, after = backbone.norm_before(site), backbone.norm_after(site)
        assert all("norm" in type(norm).__name__.lower() for norm in (before, after) if norm is not None)
        assert (before is None) == (family == "olmo2")
        assert (after is not None) == (family in ("gemma2", "gemma3_text", "olmo2"))


def test_one_map_for_queries_keys_and_values_is_neither_quantized_nor_adapted():
    """Quantized it could not give keys and values alone; peft would leave out, silently, what it does not find."""
    model = tiny_backbone("phi3")
    with pytest.raises(UsageError, match=r"one for all three \(qkv_proj\) in Phi3ForCausalLM"):
        Backbone(model).quantize("int8")
    with pytest.raises(UsageError, match=r"gate_proj, k_proj, .*does not have.*=\[down_proj, o_proj\]"):
        check_targets(model, LoraRecipe())
    check_targets(model, LoraRecipe(targets=["o_proj", "down_proj"]))


def test_smollm_is_a_llama():
    """Its config.json says model_type llama, heads in groups of three, tied embeddings."""
    config = AutoConfig.for_model(
        "llama", **SIZES | {"num_attention_heads": 6, "hidden_size": 48, "tie_word_embeddings": True}
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    ids = torch.randint(3, 97, (2, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(AdaptiveModel.build(model, "dense").eval()(ids).logits, model(ids).logits)


def test_llama_3_scales_its_rotary_tables():
    """Llama 3.1 and 3.2: `rope_type` llama3."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }
    config = LlamaConfig(**SIZES | {"rope_parameters": rope})
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    model.generation_config.eos_token_id = None
    ids = torch.randint(3, 97, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = model.generate(ids, max_new_tokens=12, do_sample=False)[:, 20:].tolist()
    assert AdaptiveModel.build(model, "dense").eval().generate(ids, max_new_tokens=12)[:, 20:].tolist() == wanted


def test_an_unknown_family_is_told_with_the_known_ones():
    with pytest.raises(UsageError, match=r"gemma2, .*llama, .*qwen3, .*got .*'gpt2'.*docs/models.md"):
        find_family("gpt2")


def test_the_example_of_the_documentation_is_a_family(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_registered", {})
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    (tmp_path / "exaone4.py").write_text(page.split("```python\n")[1].split("```")[0])
    registry.load_plugin(tmp_path / "exaone4.py")
    assert not check_specs("dense@bench", families=("exaone4",)).failures
    for name in FAMILIES:
        assert f"`{name}`" in page
