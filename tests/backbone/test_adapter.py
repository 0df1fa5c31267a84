"""What the engine reads off a Hugging Face model: costs, windows, and the paper's model sizes."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils.quantization_config import QuantizationMethod

from adaptive_bench.backbone import Backbone, Site
from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel

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
