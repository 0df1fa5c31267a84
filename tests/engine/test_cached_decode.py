"""Feeding a cache equals one forward pass over everything, for every causal method (C0) and KV policy (X3)."""

import pytest
import torch
from counted import turned

from adaptive_bench.model.generation import new_tokens

PROMPT, END = 6, 15


@pytest.mark.parametrize("spec", ["random_skip", "gateskip", "mod"])
@torch.no_grad()
def test_prompt_in_chunks(spec, shared_model, random_text):
    """X3: a prompt may come in several calls when the caller says that it still is the prompt."""
    model, ids = shared_model(spec), random_text(2, END)
    turned(model)
    output = model(ids[:, :5], use_cache=True)
    chunk = torch.zeros(2, END - 5, dtype=torch.bool)
    rest = model(ids[:, 5:], past_key_values=output.past_key_values, continuation_mask=chunk)
    torch.testing.assert_close(torch.cat([output.logits, rest.logits], 1), model(ids).logits, atol=1e-4, rtol=0)


@torch.no_grad()
def test_a_call_without_cache_leaves_no_trace(shared_model, random_text):
    """X17: requests share nothing: the same call gives the same logits whatever ran before, with `use_cache` or not."""
    for spec in ("random_skip", "gateskip", "mod"):
        model, ids = shared_model(spec), random_text(2, 8)
        turned(model)
        before = model(ids).logits
        new_tokens(model, random_text(3, 5, seed=4), max_new_tokens=3)
        output = model(ids, use_cache=True)
        assert torch.equal(output.logits, before)
        assert model(ids).past_key_values is None and output.past_key_values.get_seq_length() == 8


@pytest.mark.parametrize("spec", ["random_skip", "calm"])
@torch.no_grad()
def test_the_dial_may_change_between_calls(spec, shared_model, random_text):
    """X3: a prompt read at skip-nothing, whose hash or length nobody needed, is the same prompt later."""
    model, ids = shared_model(spec), random_text(1, 12)
    later = model.method.dial_for(0.4)
    skip_nothing = model.method.dial.skip_nothing
    least = model.method.dial.at(1e-9)  # asks for everything, skips nothing
    found = []
    for dial in (skip_nothing, least):
        model.dial = dial
        output = model(ids[:, :6], use_cache=True)
        model.dial = later
        model.reset_ledger()
        found.append(model(ids[:, 6:], past_key_values=output.past_key_values).logits)
        assert model.compute_report()["saved"]["tokens"] > 0
    assert torch.equal(*found)


@torch.no_grad()
def test_hashes_go_on_in_every_call(shared_model, random_text, monkeypatch):
    """Prefix hashes are those of the whole text, even if no earlier call computed one; rows may leave meanwhile."""
    model, ids, seen = shared_model("random_skip"), random_text(3, 9), []
    decide = model.method.decide

    def watch(view):
        seen.append(view.call.prefix_hash)
        return decide(view)

    monkeypatch.setattr(model.method, "decide", watch)
    model(ids)
    whole = seen[-1]
    monkeypatch.setattr(model.method, "decide", decide)
    cache = model(ids[:, :4], use_cache=True).past_key_values
    rows = torch.tensor([2, 0])
    cache.select_rows(rows)
    model(ids[rows, 4:7], past_key_values=cache)
    monkeypatch.setattr(model.method, "decide", watch)
    model(ids[rows, 7:], past_key_values=cache)
    assert torch.equal(seen[-1], whole[rows, 7:])
