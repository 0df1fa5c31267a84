"""SmolLM3: Llama in which every fourth layer has no rotary positions (NoPE)."""

from adaptive_bench.backbone.family import Family

SMOLLM3 = Family("SmolLM3: no rotary positions in every fourth layer", tiny={"no_rope_layer_interval": 2})
