"""A pruned backbone is a plain model that computes what static depth does."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from adaptive_bench import registry
from adaptive_bench.errors import UsageError
from adaptive_bench.model.compression import left_out, pruned


@pytest.mark.parametrize("family", registry.names("families"))
def test_its_logits_are_those_of_static_depth_also_after_it_was_saved(
    family, make_model, make_backbone, random_text, tmp_path
):
    model, ids = make_model("static_depth", backbone=make_backbone(family)), random_text(2, 12)
    model.dial = 1
    (gone,) = left_out(model)
    pruned(model).save_pretrained(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert plain.config.pruned_layers == [gone]
    assert len(plain.model.layers) == model.backbone.num_layers - 1
    with torch.no_grad():
        torch.testing.assert_close(plain(ids).logits, model(ids).logits, rtol=0, atol=1e-4)
    later = {name for name in plain.state_dict() if f"layers.{gone}." in name}
    for name in later:  # weights moved down by one, none was made anew
        before = name.replace(f"layers.{gone}.", f"layers.{gone + 1}.")
        assert torch.equal(plain.state_dict()[name], model.backbone.model.state_dict()[before])


@pytest.mark.parametrize(
    ("spec", "dial", "told"),
    [
        ("static_depth", 0, "with 0 of 4 left out"),
        ("random_skip", 0.5, "with 0 of 4 left out"),
        ("static_depth", "all", "keeps at least one layer"),
    ],
)
def test_what_cannot_be_pruned_is_refused(spec, dial, told, make_model):
    model = make_model(spec)
    model.dial = model.backbone.num_layers if dial == "all" else dial
    with pytest.raises(UsageError, match=told):
        pruned(model)


def test_a_layer_that_something_stands_in_for_is_refused(make_model, random_text):
    model, ids = make_model("static_depth[compensate=scale]"), random_text(2, 12)
    real = torch.ones_like(ids)
    model.calibrate([{"input_ids": ids, "attention_mask": real, "continuation_mask": real}], [0.3])
    model.dial = 1
    with pytest.raises(UsageError, match="replaces a layer by something else"):
        pruned(model)
