"""Later text cannot change earlier tokens in `bench` (X5); the rules that do look ahead are shown to."""

import pytest
import torch

CAUSAL_SPECS = ["dense", "random_skip", "random_skip[kv=evict]", "gateskip", "gateskip[kv=copy_below]", "mod"]


@pytest.fixture
def texts(random_text):
    """Two texts that share their first 7 of 14 tokens."""
    ids = random_text(2, 14)
    other = ids.clone()
    other[:, 7:] = random_text(2, 7, seed=1)
    return ids, other


def change_of_the_prefix(model, texts):
    model.dial = model.method.dial_for(min(0.3, model.method.max_saved_tokens))
    with torch.no_grad():
        ours, others, short = (model(ids).logits[:, :7] for ids in (*texts, texts[0][:, :7]))
    return max((ours - others).abs().max(), (ours - short).abs().max())


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("spec", CAUSAL_SPECS)
def test_bench_is_causal(spec, family, shared_model, texts):
    """X5, T-GS7: changed or missing later tokens leave the logits of the prefix alone, in both executors."""
    model = shared_model(spec, family)
    for executor in ("packed", "masked"):
        model.executor = executor
        assert change_of_the_prefix(model, texts) < 1e-4


@pytest.mark.parametrize("spec", ["gateskip@paper", "mod@paper"])
def test_paper_rules_look_ahead(spec, shared_model, texts):
    """X5: the batch quantile (C2) and expert choice in prefill (C1) violate causality; the label must stay honest."""
    assert change_of_the_prefix(shared_model(spec), texts) > 1e-2


@torch.no_grad()
def test_prompt_and_continuation_have_their_own_thresholds(shared_model, random_text):
    """G21: where the prompt ends changes decisions after it, and none before it."""
    model, ids = shared_model("gateskip"), random_text(2, 14)
    model.dial = model.method.dial_for(0.45)
    late, early = (model(ids, continuation_mask=torch.arange(14).expand_as(ids) >= end).logits for end in (12, 6))
    torch.testing.assert_close(late[:, :6], early[:, :6], atol=1e-4, rtol=0)
    assert (late[:, 6:12] - early[:, 6:12]).abs().max() > 1e-2
