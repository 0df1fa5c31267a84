"""Masked and packed mean the same for every method, KV policy, dial and family (X9, X10)."""

import pytest
import torch
from covering import each_once

from adaptive_bench.model.generation import new_tokens

SPECS = [
    "dense",
    *(f"random_skip[kv={kv}]" for kv in ("recompute", "copy_below", "evict")),
    *(f"gateskip[kv={kv}]" for kv in ("recompute", "copy_below", "evict")),
    "gateskip[shape=scalar,sharing=shared,input=residual]",
    "gateskip@paper",
    "mod",
    "mod@paper",
]
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "granite", "olmo2", "phi3", "smollm3")


def dials(model):
    shares = [share for share in (0.0, 0.1, 0.3, 0.45) if share <= model.method.max_saved_tokens]
    return [model.method.dial_for(share) for share in shares]


@pytest.mark.parametrize(("spec", "family"), each_once(SPECS, FAMILIES))
@torch.no_grad()
def test_forward(spec, family, shared_model, random_text):
    """T-GS4, X10: logits of real tokens and what is booked as needed, with left padding and without."""
    model, ids = shared_model(spec, family), random_text(3, 14)
    masks = [torch.ones_like(ids), torch.arange(14).expand(3, 14) >= torch.tensor([[0], [6], [13]])]
    for dial in dials(model):
        model.dial = dial
        for mask in masks:
            logits, needed = {}, {}
            for model.executor in ("masked", "packed"):
                model.reset_ledger()
                logits[model.executor] = model(ids, mask, use_cache=True).logits[mask.bool()]
                report = model.compute_report()
                needed[model.executor] = {b: n for b, n in report["macs"].items() if b != "waste.dense"}
                needed[model.executor]["sites"] = report["sites"]
            torch.testing.assert_close(logits["packed"], logits["masked"], atol=1e-4, rtol=0)
            assert needed["packed"] == needed["masked"]


@pytest.mark.parametrize(("family", "batch"), [("llama", 3), ("llama", 1), ("gemma2", 2), ("mistral", 2)])
@pytest.mark.parametrize("spec", SPECS)
def test_generate(spec, family, batch, shared_model, random_text):
    """X10: the same greedy tokens and savings, prompts left-padded to ragged lengths."""
    model, ids = shared_model(spec, family), random_text(batch, 9)
    mask = torch.arange(9).expand(batch, 9) >= torch.tensor([[3], [0], [8]])[:batch]
    for dial in dials(model)[::2]:
        model.dial = dial
        results = []
        for model.executor in ("masked", "packed"):
            model.reset_ledger()
            tokens = new_tokens(model, ids, mask, max_new_tokens=5, stop=lambda new: new[-1] % 7 == 0)
            saved = model.compute_report()["saved"]
            results.append((tokens, saved["tokens"], saved["core"], saved["net"]))
        assert results[0] == results[1]


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec != "dense"])
@torch.no_grad()
def test_the_dial_has_an_effect(spec, shared_model, random_text):
    """X14: skipping three tenths changes logits far beyond the tolerance of the tests above."""
    model, ids = shared_model(spec), random_text(2, 14)
    before = model(ids).logits
    model.dial = model.method.dial_for(0.3)
    assert (model(ids).logits - before).abs().max() > 0.1
