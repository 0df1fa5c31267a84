"""Gemma 2: norms after branches too, a window in every other layer, soft caps on scores and logits.

A method's scale acts after the norm that follows a branch.
"""

from adaptive_bench.backbone.family import Family

GEMMA2 = Family(
    "Gemma 2: post-norms, alternating windows, soft caps",
    norm_before={"attention": "input_layernorm", "mlp": "pre_feedforward_layernorm"},
    norm_after={"attention": "post_attention_layernorm", "mlp": "post_feedforward_layernorm"},
    norm_adds_one=True,
    tiny={"head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 8},
)
