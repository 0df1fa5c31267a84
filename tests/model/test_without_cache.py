"""`use_cache=False`: Hugging Face's tokens where nothing skips, those with a cache where tokens do."""

import pytest
import torch

from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel

FAMILIES = ["llama", "gemma2"]


def padded_prompts(random_text):
    """Three prompts of 4, 9 and 7 tokens, padded on the left."""
    ids, mask = random_text(3, 9), torch.arange(9) >= torch.tensor([[5], [0], [2]])
    return {"input_ids": ids * mask, "attention_mask": mask.long()}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("setting", [{}, {"do_sample": True, "top_k": 9}], ids=["greedy", "sampled"])
def test_without_a_cache_the_dense_model_writes_what_hugging_face_writes(
    family, setting, shared_backbone, shared_model, random_text
):
    """Rows that end included."""
    arguments = padded_prompts(random_text) | {"max_new_tokens": 8, "pad_token_id": 0, "use_cache": False} | setting
    written = []
    for each in (shared_backbone(family), shared_model("dense", family)):
        torch.manual_seed(3)
        free = each.generate(**arguments)
        torch.manual_seed(3)
        written += [free, each.generate(**arguments, eos_token_id=[int(free[0, 11]), int(free[1, 14])])]
    assert torch.equal(written[0], written[2]) and torch.equal(written[1], written[3])


def skipping(model, share=0.3):
    """A model that skips."""
    model.saving = min(share, model.method.max_saved_tokens)
    return model


@pytest.mark.parametrize("spec", ["gateskip", "random_skip", "mod"])
def test_without_a_cache_a_method_writes_what_it_writes_with_one(spec, shared_model, random_text):
    """Decisions of class C0 are the same however a text is cut into calls."""
    model, prompts = skipping(shared_model(spec)), padded_prompts(random_text)
    with_cache = model.generate(**prompts, max_new_tokens=8)
    assert model.compute_report()["saved"]["tokens"] > 0
    assert torch.equal(model.generate(**prompts, max_new_tokens=8, use_cache=False), with_cache)


def test_methods_that_would_decide_anew_are_refused(make_backbone, random_text):
    model = AdaptiveModel.build(make_backbone("llama"), "gateskip@paper").eval()
    with pytest.raises(UsageError, match="use_cache=False"):
        model.generate(random_text(1, 4), use_cache=False, max_new_tokens=3)
