"""Self-speculative decoding is exact, and leaves the cache as if nothing had ever been drafted."""

import pytest
import torch

from adaptive_bench.errors import UsageError
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.speculative_decoding import self_speculate
from adaptive_bench.model.tokenization import logits_processors

LAYERS = {"llama": 4, "gemma2": 3}
NEW = 16


@pytest.mark.parametrize("drafts", [1, 3, 5])
@pytest.mark.parametrize("family", LAYERS)
def test_full_depth_accepts_its_own_drafts(family, drafts, shared_model, random_text):
    """T-LS8, T-SS2: acceptance is 1 when E = L, d + 1 tokens a round; at E = 1 the same prompts are refused some."""
    model, wrong = shared_model("layerskip", family), 0
    for seed in range(4):
        prompt = random_text(1, 7, seed)
        settings = {"drafts": drafts, "max_new_tokens": 1 + 2 * (drafts + 1)}
        found = self_speculate(model, prompt, draft_dial=LAYERS[family], **settings)
        assert [(each.drafted, each.accepted) for each in found.rounds] == [(drafts, drafts)] * 2
        shallow = self_speculate(model, prompt, draft_dial=1, **settings)
        wrong += sum(each.drafted - each.accepted for each in shallow.rounds)
    assert wrong > 0


def test_penalties_of_a_generation_config_are_for_whoever_asks_for_them(shared_model, random_text, monkeypatch):
    model, prompt = shared_model("layerskip"), random_text(1, 7)
    monkeypatch.setattr(model.backbone_model.generation_config, "repetition_penalty", 9.0)
    expected = new_tokens(model, prompt, max_new_tokens=NEW)
    assert [self_speculate(model, prompt, draft_dial=1, drafts=3, max_new_tokens=NEW).tokens] == expected
    assert new_tokens(model, prompt, max_new_tokens=NEW, processors=logits_processors(model)) != expected


@pytest.mark.parametrize(("length", "new", "expected"), [(60, 20, 4), (63, 20, 1), (7, 0, 0), (7, 1, 1), (7, 2, 2)])
def test_room(shared_model, random_text, length, new, expected):
    """T-LS7: neither drafts nor text outgrow the context of 64 tokens or `max_new_tokens`."""
    model, prompt = shared_model("layerskip"), random_text(1, length)
    for exit_layer in (1, 4):
        found = self_speculate(model, prompt, draft_dial=exit_layer, drafts=5, max_new_tokens=new)
        assert [found.tokens] == new_tokens(model, prompt, max_new_tokens=new)
        assert len(found.tokens) == expected
        written = 1
        for each in found.rounds:
            assert written + each.drafted + 1 <= expected
            written += each.accepted + 1


def test_the_dial_comes_back(shared_model, random_text, monkeypatch):
    """T-LS7: also after an error, whoever of the two failed; the text does not depend on it."""
    model, prompt = shared_model("layerskip"), random_text(1, 7)
    (expected,) = new_tokens(model, prompt, max_new_tokens=6)
    settings = {"draft_dial": 1, "drafts": 3, "max_new_tokens": 6}
    model.dial = 3
    assert self_speculate(model, prompt, **settings).tokens == expected
    assert model.dial == 3
    decide = model.method.decide
    for failing in (1, 4):

        def fail(view, failing=failing):
            if model.dial == failing:
                raise RuntimeError("out of memory")
            return decide(view)

        monkeypatch.setattr(model.method, "decide", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            self_speculate(model, prompt, **settings)
        assert model.dial == 3


def test_refusals(shared_model, random_text):
    """T-LS7: what cannot be done is said at once, with the value received and the next step."""
    model, prompt = shared_model("layerskip"), random_text(1, 7)
    settings = {"draft_dial": 2, "drafts": 3, "max_new_tokens": 4}
    for changes, message in (
        ({"input_ids": random_text(1, 64)}, "context of 64 tokens, got 64"),
        ({"draft_dial": 0}, r"'exit_layer' must lie in \[1, 4\], got 0"),
        ({"draft_dial": 5}, r"'exit_layer' must lie in \[1, 4\], got 5"),
        ({"drafts": 0}, "at least 1 token, got .*drafts=0.*model.generate"),
        ({"input_ids": random_text(2, 7)}, "One prompt is continued .* got 2 prompts"),
    ):
        with pytest.raises(UsageError, match=message):
            self_speculate(model, **({"input_ids": prompt} | settings | changes))
    assert model.compute_report()["counts"]["prefill"]["calls"] == 0
    with pytest.raises(UsageError, match="eval"):
        self_speculate(model.train(), prompt, **settings)


@torch.no_grad()
def test_rewinding_a_cache(shared_model, random_text):
    """T-SS4: after going back any number of tokens a text goes on as if they had never been there."""
    model, ids, other = shared_model("layerskip"), random_text(1, 12), random_text(1, 12, seed=1)
    for kept in range(5, 9):
        cache = model(ids[:, :5], use_cache=True).past_key_values
        before = cache.session.copy()
        model(torch.cat([ids[:, 5:kept], other[:, kept:]], dim=1), past_key_values=cache)
        cache.rewind(before.after(ids[:, 5:kept]) if kept > 5 else before)
        logits = model(ids[:, kept:], past_key_values=cache).logits
        torch.testing.assert_close(logits, model(ids).logits[:, kept:], atol=1e-5, rtol=1e-5)
