"""OLMo 2: norms after branches alone, and norms of all queries and of all keys of a token together.

Branches read the residual stream as it is; gates and routers see its tokens at one length (`SiteView.normed`). A
method's scale acts after the norm that follows a branch.
"""

from adaptive_bench.backbone.family import Family

OLMO2 = Family(
    "OLMo 2: norms after branches alone, and of queries and keys",
    norm_before={},
    norm_after={"attention": "post_attention_layernorm", "mlp": "post_feedforward_layernorm"},
)
