"""Granite 3: Llama with constant factors on embeddings, scores, what branches add, and logits.

A method's scale multiplies what a branch adds, as in every family: the factor is in it already.
"""

from typing import Any

from adaptive_bench.backbone.family import Family, Scales


def _scales(config: Any) -> Scales:
    return Scales(config.embedding_multiplier, config.residual_multiplier, config.logits_scaling)


GRANITE = Family(
    "Granite 3: constant factors on embeddings, scores, branches and logits",
    scales=_scales,
    tiny={
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
        "logits_scaling": 0.5,
    },
)
