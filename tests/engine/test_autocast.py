"""Mixed precision: both executors, every KV policy, with and without a cache, as training and evaluation use them."""

import pytest
import torch

SPECS = ["dense", "random_skip", "random_skip[kv=copy_below]", "random_skip[kv=evict]", "gateskip", "mod", "free"]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("spec", SPECS)
@torch.no_grad()
def test_executors_agree_under_autocast(spec, family, shared_model, random_text):
    """X18: logits are those of fp32 but for bf16's rounding, masked and packed, at once and in pieces."""
    model, ids = shared_model(spec, family), random_text(2, 16)
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    model.dial = model.method.dial_for(min(0.3, model.method.max_saved_tokens))
    if model.method.kv_policy != "defer" and spec.startswith(("dense", "random")):  # decisions that rounding leaves
        wanted = model(ids, mask).logits[:, -1]
        scale = wanted.abs().max()
    else:
        wanted = None
    for model.executor in ("packed", "masked"):
        with torch.autocast("cpu", torch.bfloat16):
            whole = model(ids, mask).logits[:, -1]
            first = model(ids[:, :9], mask[:, :9], use_cache=True)
            pieces = model(ids[:, 9:], past_key_values=first.past_key_values).logits[:, -1]
        assert whole.isfinite().all() and pieces.isfinite().all()
        if wanted is not None:
            for got in (whole, pieces):
                assert float((got.float() - wanted).abs().max() / scale) < 0.1


@torch.no_grad()
def test_a_cache_outlives_autocast(shared_model, random_text):
    """Stored K,V keep their dtype when later calls run in another one."""
    model, ids = shared_model("random_skip[kv=copy_below]"), random_text(2, 12)
    model.dial = 0.3
    for first, later in ((True, False), (False, True)):
        with torch.autocast("cpu", torch.bfloat16, enabled=first):
            output = model(ids[:, :6], use_cache=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=later):
            assert model(ids[:, 6:], past_key_values=output.past_key_values).logits.isfinite().all()
