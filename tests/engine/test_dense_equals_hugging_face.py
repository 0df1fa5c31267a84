"""The `dense` method is the wrapped model, bit for bit (X1)."""

import pytest
import torch

from adaptive_bench.model.generation import new_tokens

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "granite", "olmo2", "phi3", "smollm3")
CASES = [
    *((family, attention) for family in FAMILIES for attention in ("sdpa", "eager")),
    ("gemma2", "eager"),
]
families = pytest.mark.parametrize(("family", "attention"), CASES)


@families
@torch.no_grad()
def test_prefill(family, attention, shared_backbone, shared_model, random_text):
    """X1: logits and cross entropy of whole sequences, longer than any sliding window."""
    backbone, model, ids = (
        shared_backbone(family, attention),
        shared_model("dense", family, attention),
        random_text(3, 17),
    )
    for executor in ("packed", "masked"):
        model.executor = executor
        assert torch.equal(model(ids).logits, backbone(ids).logits)
        assert torch.equal(model(ids, labels=ids).loss, backbone(ids, labels=ids).loss)
        assert torch.equal(model(ids, logits_to_keep=2).logits, backbone(ids, logits_to_keep=2).logits)


@families
@torch.no_grad()
def test_cached_decode(family, attention, shared_backbone, shared_model, random_text):
    """X1, X3: tokens fed singly and in chunks to a cache.

    Once a sequence outgrows its sliding window Hugging Face drops old keys where this cache hides them: the same sums,
    taken in another order, so bit-equality ends there.
    """
    backbone, model, ids = (
        shared_backbone(family, attention),
        shared_model("dense", family, attention),
        random_text(2, 15),
    )
    ours = theirs = None
    for start, end in ((0, 3), (3, 5), (5, 9), (9, 10), (10, 15)):
        chunk = ids[:, start:end]
        mine = model(chunk, past_key_values=ours, use_cache=True)
        other = backbone(chunk, past_key_values=theirs, use_cache=True)
        ours, theirs = mine.past_key_values, other.past_key_values
        # 5: the smallest window; 9: a step of one token, which adds in another order, comes next
        if end <= 5 or (end <= 9 and family in ("llama", "qwen3", "granite", "olmo2", "smollm3")):
            assert torch.equal(mine.logits, other.logits)
        torch.testing.assert_close(mine.logits, other.logits, atol=2e-5, rtol=0)


@families
def test_greedy_generation(family, attention, shared_backbone, shared_model, random_text):
    """X1: greedy continuation, with and without left padding."""
    backbone, model, ids = (
        shared_backbone(family, attention),
        shared_model("dense", family, attention),
        random_text(3, 11),
    )
    for mask in (torch.ones_like(ids), torch.tensor([[1] * 11, [0] * 4 + [1] * 7, [0] * 10 + [1]])):
        with torch.no_grad():
            wanted = backbone.generate(ids, attention_mask=mask, max_new_tokens=9, do_sample=False)[:, 11:].tolist()
        for executor in ("packed", "masked"):
            model.executor = executor
            assert new_tokens(model, ids, mask, max_new_tokens=9) == wanted


@pytest.mark.parametrize("spec", ["gateskip", "random_skip", "mod"])
def test_attaching_leaves_the_backbone_alone(spec, make_backbone, make_model, random_text):
    """X1, X12: no parameter of the wrapped model changes by being wrapped, calibrated and run."""
    backbone, untouched = make_backbone("llama"), make_backbone("llama")
    model = make_model(spec, backbone=backbone)
    new_tokens(model, random_text(1, 4), max_new_tokens=2)
    for (name, ours), (_, original) in zip(backbone.named_parameters(), untouched.named_parameters(), strict=True):
        assert torch.equal(ours, original), name
    assert torch.equal(backbone(random_text(1, 9)).logits, untouched(random_text(1, 9)).logits)
