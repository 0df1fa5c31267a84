"""The nano backbone: where its weights lie and what it looks like."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from .tokenizer import CONTEXT

_FOLDER = Path(__file__).parent / "weights"


def nano_folder() -> Path:
    """Folder of the shipped weights in Hugging Face's layout (entry point `nano` of `adaptive_bench.models`)."""
    return _FOLDER


def build_backbone(tokenizer: PreTrainedTokenizerBase, seed: int) -> LlamaForCausalLM:
    """An untrained backbone of about 1 million parameters with tied embeddings and grouped-query attention."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=0.05,  # the usual 0.02 suits wide models; so narrow a one starts to attend much later with it
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)
