"""Feeding a cache equals one forward pass over everything, for every causal method (C0) and KV policy (X3)."""

from itertools import pairwise

import pytest
import torch

from adaptive_bench.model.generation import new_tokens

C0_SPECS = [
    "dense",
    *(f"random_skip[kv={kv}]" for kv in ("recompute", "copy_below", "evict")),
    *(f"gateskip[kv={kv}]" for kv in ("recompute", "copy_below", "evict")),
    "gateskip[shape=scalar]",
    "mod",
]
PROMPT, END = 6, 15


def set_dial(model, saved_tokens=0.3):
    model.dial = model.method.dial_for(min(saved_tokens, model.method.max_saved_tokens))


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
@pytest.mark.parametrize("spec", C0_SPECS)
@torch.no_grad()
def test_cache_equals_full_forward(spec, family, shared_model, random_text):
    """X3, T-GS6, T-MoD7, T-RS2: prompt, then tokens one by one, or in chunks of several."""
    model, ids = shared_model(spec, family), random_text(2, END)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    set_dial(model)
    continuation = torch.arange(END).expand_as(ids) >= PROMPT
    for executor in ("packed", "masked"):
        model.executor = executor
        whole = model(ids, mask, continuation_mask=continuation).logits
        for cuts in (range(PROMPT, END + 1), (PROMPT, PROMPT + 1, PROMPT + 5, END)):
            output = model(ids[:, :PROMPT], mask[:, :PROMPT], use_cache=True)
            parts, cuts = [output.logits], list(cuts)
            for start, end in pairwise(cuts):
                output = model(ids[:, start:end], past_key_values=output.past_key_values, use_cache=True)
                parts.append(output.logits)
            fed = torch.cat(parts, dim=1)
            torch.testing.assert_close(fed[mask.bool()], whole[mask.bool()], atol=1e-4, rtol=0)


@pytest.mark.parametrize("spec", ["random_skip", "gateskip", "mod"])
@torch.no_grad()
def test_prompt_in_chunks(spec, shared_model, random_text):
    """X3: a prompt may come in several calls when the caller says that it still is the prompt."""
    model, ids = shared_model(spec), random_text(2, END)
    set_dial(model)
    output = model(ids[:, :5], use_cache=True)
    chunk = torch.zeros(2, END - 5, dtype=torch.bool)
    rest = model(ids[:, 5:], past_key_values=output.past_key_values, continuation_mask=chunk)
    torch.testing.assert_close(torch.cat([output.logits, rest.logits], 1), model(ids).logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize("spec", C0_SPECS)
@torch.no_grad()
def test_generation_is_greedy_over_full_forwards(spec, shared_model, random_text):
    """X3: every generated token is the most likely one of a forward pass over all text before it."""
    model, prompt = shared_model(spec), random_text(1, PROMPT)
    set_dial(model)
    text = prompt
    for token in new_tokens(model, prompt, max_new_tokens=6)[0]:
        continuation = torch.arange(text.shape[1])[None] >= PROMPT
        assert model(text, continuation_mask=continuation).logits[0, -1].argmax() == token
        text = torch.cat([text, torch.tensor([[token]])], dim=1)


@torch.no_grad()
def test_a_call_without_cache_leaves_no_trace(shared_model, random_text):
    """X17: requests share nothing: the same call gives the same logits whatever ran before, with `use_cache` or not."""
    for spec in ("random_skip", "gateskip", "mod"):
        model, ids = shared_model(spec), random_text(2, 8)
        set_dial(model)
        before = model(ids).logits
        new_tokens(model, random_text(3, 5, seed=4), max_new_tokens=3)
        output = model(ids, use_cache=True)
        assert torch.equal(output.logits, before)
        assert model(ids).past_key_values is None and output.past_key_values.get_seq_length() == 8
