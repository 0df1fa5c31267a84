"""Llama 2 and 3, and whatever shares their architecture, such as SmolLM and TinyLlama."""

from adaptive_bench.backbone.family import Family

LLAMA = Family("Llama 2, 3, 3.1, 3.2; SmolLM, SmolLM2, TinyLlama")
