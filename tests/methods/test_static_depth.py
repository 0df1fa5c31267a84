"""Static depth: the control that leaves out the same layers for every token."""

import copy

import pytest
import torch
from torch import nn

from adaptive_bench.model.generation import new_tokens


def _without(backbone, skipped):
    short = copy.deepcopy(backbone)
    short.model.layers = nn.ModuleList(layer for at, layer in enumerate(short.model.layers) if at not in skipped)
    for at, layer in enumerate(short.model.layers):
        layer.self_attn.layer_idx = at
    short.config.num_hidden_layers = len(short.model.layers)
    if getattr(short.config, "layer_types", None):
        short.config.layer_types = [kind for at, kind in enumerate(backbone.config.layer_types) if at not in skipped]
    return short


@torch.no_grad()
@pytest.mark.parametrize("executor", ["masked", "packed"])
@pytest.mark.parametrize(("family", "count"), [("llama", 0), ("llama", 1), ("llama", 2), ("gemma2", 1)])
def test_it_is_the_model_without_those_layers(shared_model, random_text, family, count, executor):
    """The logits are those of the Hugging Face model with the layers deleted, and the saving is their share."""
    model, ids = shared_model("static_depth", family), random_text(3, 12)
    model.executor, model.dial = executor, count
    short = _without(model.backbone_model, model.method.skipped_layers())
    torch.testing.assert_close(model(ids).logits, short(ids).logits, atol=1e-5, rtol=1e-5)
    assert model.compute_report()["saved"]["tokens"] == pytest.approx(count / model.backbone.num_layers)


@torch.no_grad()
def test_generation(shared_model, random_text):
    model, ids = shared_model("static_depth"), random_text(3, 8)
    model.dial = 2
    short = _without(model.backbone_model, model.method.skipped_layers())
    expected = short.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)[:, 8:].tolist()
    assert new_tokens(model, ids, max_new_tokens=6) == expected


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 8, 16])
def test_layers_are_spread_and_the_ends_go_last(make_model, make_backbone, layers):
    model = make_model("static_depth", backbone=make_backbone("llama", num_hidden_layers=layers))
    for count in range(layers + 1):
        model.dial = count
        skipped = model.method.skipped_layers()
        assert len(skipped) == count
        assert skipped <= set(range(layers))
        if layers > 1:
            assert (layers - 1 in skipped) == (count > max(0, layers - 2))
            assert (0 in skipped) == (count == layers)
    if layers == 16:
        model.dial = 4
        assert model.method.skipped_layers() == {2, 6, 9, 13}


def test_dial_is_the_nearest_number_of_layers(shared_model):
    method = shared_model("static_depth").method
    assert [method.dial_for(saving) for saving in (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)] == [0, 0, 1, 1, 2, 4]
