"""Named shapes of real models: sizes only, no weights.

They price the decisions of a small model on a real one, and price a run whose model is not at hand.

Sources: the `config.json` files of the models on the Hugging Face hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from adaptive_bench import registry
from adaptive_bench.errors import UsageError

_TUNED = ("-instruct", "-it")  # name endings of tuned models, which have the shape of their base model
_KEYS = (
    *("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("intermediate_size", "vocab_size", "max_position_embeddings", "tie_word_embeddings"),
)
_SIZES = {
    "llama-3.2-1b": ("llama", 2048, 16, 32, 8, 64, 8192, 128256, 131072, True),  # meta-llama/Llama-3.2-1B
    "llama-3.2-3b": ("llama", 3072, 28, 24, 8, 128, 8192, 128256, 131072, True),  # meta-llama/Llama-3.2-3B
    "llama-3.1-8b": ("llama", 4096, 32, 32, 8, 128, 14336, 128256, 131072, False),  # meta-llama/Llama-3.1-8B
    "gemma-2-2b": ("gemma2", 2304, 26, 8, 4, 256, 9216, 256000, 8192, True),  # google/gemma-2-2b
}
SHAPES: Mapping[str, Mapping[str, Any]] = {name: dict(zip(_KEYS, row, strict=True)) for name, row in _SIZES.items()}


@cache
def find_shape(name: str) -> PretrainedConfig:
    """The shape of this name as a Hugging Face config.

    Raises:
        UsageError: No shape has this name.
    """
    if name not in SHAPES:
        raise UsageError(f"No model shape is called {name!r}. {registry.did_you_mean(name, SHAPES)}")
    return AutoConfig.for_model(**SHAPES[name])


def shape_of_model(model: str) -> PretrainedConfig | None:
    """The stored shape of a model of the hub; `None` if there is none."""
    name = model.rpartition("/")[2].lower()
    for ending in _TUNED:
        name = name.removesuffix(ending)
    return find_shape(name) if name in SHAPES else None
