"""What sets one family of Hugging Face decoders apart from the others; see docs/models.md for how to add one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adaptive_bench import registry
from adaptive_bench.errors import UsageError


def own_window(config: Any, attention: Any) -> int | None:
    """The sliding window an attention module carries itself, in tokens."""
    window: int | None = getattr(attention, "sliding_window", None)
    return window


class Scales(NamedTuple):
    """What a family multiplies embeddings and the outputs of branches by, and what it divides logits by."""

    embedding: float = 1.0
    branch: float = 1.0
    logits: float = 1.0


def no_scales(config: Any) -> Scales:
    """Nothing is multiplied."""
    return Scales()


@dataclass(frozen=True)
class Family:
    """A family, registered under its `model_type` (entry-point group `adaptive_bench.families`).

    The decoder has Llama's attribute names: `model.layers`, `embed_tokens`, `rotary_emb`, `norm`, and in a layer
    `self_attn` with `q_proj` to `o_proj` and `mlp` with `gate_proj`, `up_proj` and `down_proj`. Norms of queries and
    keys (`q_norm`, `k_norm`), biases, layers without rotary positions (`use_rope`), and soft caps named in the config
    are found by themselves.

    Attributes:
        description: For the reader, with the models that belong to it.
        norm_before: Attribute of a layer by branch (`attention`, `mlp`): the norm of what the branch reads; empty where
            it reads the residual stream as it is.
        norm_after: The norm of what the branch adds; empty where the family has none.
        norm_adds_one: The weights of norms are stored minus one.
        window: Gives the sliding window of a layer, in tokens, from the config and the layer's attention module.
        scales: Gives the family's constant factors, from the config.
        tiny: Settings of the config in which tiny test models show what is particular about the family.
    """

    description: str
    norm_before: Mapping[str, str] = field(
        default_factory=lambda: {"attention": "input_layernorm", "mlp": "post_attention_layernorm"}
    )
    norm_after: Mapping[str, str] = field(default_factory=dict)
    norm_adds_one: bool = False
    window: Callable[[Any, Any], int | None] = own_window
    scales: Callable[[Any], Scales] = no_scales
    tiny: Mapping[str, Any] = field(default_factory=dict)


def find_family(model_type: str, model: str = "") -> Family:
    """The family of a `model_type`.

    Args:
        model: What the type was read from, for the message.
    """
    known = registry.names("families")
    if model_type not in known:
        raise UsageError(
            f"A backbone must be one of the families {', '.join(known)}, got model_type {model_type!r}"
            f"{model and f' ({model})'}. Choose another --model, or register the family (see docs/models.md)."
        )
    family: Family = registry.get("families", model_type)
    return family
