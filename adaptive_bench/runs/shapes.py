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

_LLAMA_VOCABULARY = 128256
_LLAMA_CONTEXT = 131072
_TUNED = ("-instruct", "-it")  # name endings of tuned models, which have the shape of their base model

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "llama-3.2-1b": {  # meta-llama/Llama-3.2-1B
        "model_type": "llama",
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 8192,
        "vocab_size": _LLAMA_VOCABULARY,
        "max_position_embeddings": _LLAMA_CONTEXT,
        "tie_word_embeddings": True,
    },
    "llama-3.2-3b": {  # meta-llama/Llama-3.2-3B
        "model_type": "llama",
        "hidden_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 8192,
        "vocab_size": _LLAMA_VOCABULARY,
        "max_position_embeddings": _LLAMA_CONTEXT,
        "tie_word_embeddings": True,
    },
    "llama-3.1-8b": {  # meta-llama/Llama-3.1-8B
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 14336,
        "vocab_size": _LLAMA_VOCABULARY,
        "max_position_embeddings": _LLAMA_CONTEXT,
        "tie_word_embeddings": False,
    },
    "gemma-2-2b": {  # google/gemma-2-2b
        "model_type": "gemma2",
        "hidden_size": 2304,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "intermediate_size": 9216,
        "vocab_size": 256000,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
}


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
