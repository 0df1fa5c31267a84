"""Families are registered one by one; a new one is a small file."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone, Site, find_family
from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.adapters import check_targets
from adaptive_bench.recipe import LoraRecipe
from adaptive_bench.testing.backbones import SIZES, tiny_backbone

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
    (tmp_path / "olive.py").write_text(page.split("```python\n")[1].split("```")[0])
    registry.load_plugin(tmp_path / "olive.py")
    assert find_family("olive").norm_after["mlp"] == "post_feedforward_layernorm"
    for name in FAMILIES:
        assert f"`{name}`" in page
