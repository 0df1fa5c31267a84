"""Families of Hugging Face decoders and how they differ; docs/models.md shows how to add one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adaptive_bench import registry
from adaptive_bench.errors import UsageError


class Scales(NamedTuple):
    """Constant factors of a family: it multiplies embeddings and branch outputs, and divides logits."""

    embedding: float = 1.0
    branch: float = 1.0
    logits: float = 1.0


@dataclass(frozen=True)
class Family:
    """A family, registered under its `model_type` (entry-point group `adaptive_bench.families`).

    The decoder must have Llama's attribute names: `model.layers`, `embed_tokens`, `rotary_emb`, `norm`, and in a layer
    `self_attn` with `q_proj` to `o_proj` and `mlp` with `gate_proj`, `up_proj` and `down_proj`. Norms of queries and
    keys (`q_norm`, `k_norm`), biases, and soft caps named in the config are detected automatically.

    Attributes:
        description: Text for readers, with the models that belong to the family.
        norm_before: The layer's attribute, by branch (`attention`, `mlp`), with the norm of the branch's input; empty
            if branches read the raw residual stream.
        norm_after: The same for the norm of the branch's output; empty if the family has none.
        norm_adds_one: The weights of norms are stored minus one.
        window: Maps the config and a layer's attention module to the layer's sliding window, in tokens; by default the
            module's `sliding_window`.
        rotary: Maps the same two to whether the layer turns queries and keys by their positions; by default the
            module's `use_rope`, and yes if it has none.
        scales: Maps the config to the family's constant factors.
        tiny: Config settings with which tiny test models show the family's particular features.
    """

    description: str
    norm_before: Mapping[str, str] = field(
        default_factory=lambda: {"attention": "input_layernorm", "mlp": "post_attention_layernorm"}
    )
    norm_after: Mapping[str, str] = field(default_factory=dict)
    norm_adds_one: bool = False
    window: Callable[[Any, Any], int | None] = lambda config, attention: getattr(attention, "sliding_window", None)
    rotary: Callable[[Any, Any], bool] = lambda config, attention: getattr(attention, "use_rope", True)
    scales: Callable[[Any], Scales] = lambda config: Scales()
    tiny: Mapping[str, Any] = field(default_factory=dict)


def find_family(model_type: str, model: str = "") -> Family:
    """The family of a `model_type`; `model` names where it was read, for the message."""
    known = registry.names("families")
    if model_type not in known:
        raise UsageError(
            f"A backbone must be one of the families {', '.join(known)}, got model_type {model_type!r}"
            f"{model and f' ({model})'}. Choose another --model, or register the family (see docs/models.md)."
        )
    return registry.get("families", model_type)


def _one_window(config: Any, attention: Any) -> int | None:
    """The window shared by all layers."""
    return config.sliding_window


_POST_NORMS = {"attention": "post_attention_layernorm", "mlp": "post_feedforward_layernorm"}
_GEMMA: dict[str, Any] = {
    "norm_before": {"attention": "input_layernorm", "mlp": "pre_feedforward_layernorm"},
    "norm_after": _POST_NORMS,
    "norm_adds_one": True,
}
_GEMMA_TINY = {"head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 8}

LLAMA = Family("Llama 2, 3, 3.1, 3.2; SmolLM, SmolLM2, TinyLlama")
MISTRAL = Family("Mistral 7B: one sliding window for all layers", window=_one_window, tiny={"sliding_window": 6})
QWEN2 = Family(
    "Qwen 2, 2.5: biases in attention, windows in the upper layers",
    tiny={"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
)
QWEN3 = Family("Qwen 3: norms of queries and keys", tiny={"head_dim": 16})
GEMMA2 = Family("Gemma 2: post-norms, alternating windows, soft caps", **_GEMMA, tiny=_GEMMA_TINY)
GEMMA3 = Family(
    "Gemma 3, text: post-norms, norms of queries and keys, windows with their own rotary base",
    **_GEMMA,
    tiny=_GEMMA_TINY | {"sliding_window_pattern": 2},
)
GRANITE = Family(
    "Granite 3: constant factors on embeddings, scores, branches and logits",
    scales=lambda config: Scales(config.embedding_multiplier, config.residual_multiplier, config.logits_scaling),
    tiny={"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2, "logits_scaling": 0.5},
)
# Branches read the raw residual stream; gates and routers see its tokens normalised to one length (`SiteView.normed`).
OLMO2 = Family("OLMo 2: norms after branches alone, and of queries and keys", norm_before={}, norm_after=_POST_NORMS)
PHI3 = Family(
    "Phi 3, 3.5, 4: fused projections",
    window=_one_window,
    tiny={
        "sliding_window": 6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    },
)
SMOLLM3 = Family("SmolLM3: no rotary positions in every fourth layer", tiny={"no_rope_layer_interval": 2})
