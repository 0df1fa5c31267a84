"""Texts, and models of which some layers do nothing."""

import pytest
import torch

from adaptive_bench.headroom.task_texts import TaskText


@pytest.fixture
def silent(make_backbone):
    """`silent(layers)`: a model of its own whose layers with these numbers add nothing."""

    def make(layers):
        backbone = make_backbone("llama")
        with torch.no_grad():
            for layer in layers:
                backbone.model.layers[layer].self_attn.o_proj.weight.zero_()
                backbone.model.layers[layer].mlp.down_proj.weight.zero_()
        return backbone

    return make


@pytest.fixture
def texts(random_text):
    """Five texts of different lengths; answers as they come."""
    ids = random_text(5, 14, seed=3).tolist()
    lengths = ((4, 6), (7, 7), (3, 1), (5, 4), (6, 8))
    return [
        TaskText(tuple(row[:prompt]), tuple(row[prompt : prompt + answer]))
        for row, (prompt, answer) in zip(ids, lengths, strict=True)
    ]
