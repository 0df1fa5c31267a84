"""Qwen 3: norms of queries and keys, heads wider than the hidden size."""

from adaptive_bench.backbone.family import Family

QWEN3 = Family("Qwen 3: norms of queries and keys", tiny={"head_dim": 16})
