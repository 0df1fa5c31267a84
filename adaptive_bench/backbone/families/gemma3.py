"""Gemma 3, text: norms after branches too, norms of queries and keys, a window in five layers of six, which have rotary
positions of their own.

A method's scale acts after the norm that follows a branch.
"""

from adaptive_bench.backbone.family import Family

GEMMA3 = Family(
    "Gemma 3, text: post-norms, norms of queries and keys, windows with their own rotary base",
    norm_before={"attention": "input_layernorm", "mlp": "pre_feedforward_layernorm"},
    norm_after={"attention": "post_attention_layernorm", "mlp": "post_feedforward_layernorm"},
    norm_adds_one=True,
    tiny={"head_dim": 16, "sliding_window": 6, "sliding_window_pattern": 2, "query_pre_attn_scalar": 8},
)
