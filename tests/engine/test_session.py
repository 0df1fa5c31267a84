"""What a session carries between calls does not hang on what the method asked for at the dial of an earlier call."""

import pytest
import torch


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
