"""Self-speculative decoding is exact, and leaves the cache as if nothing had ever been drafted."""

import pytest
import torch

from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.errors import UsageError
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.speculative_decoding import self_speculate
from adaptive_bench.model.tokenization import logits_processors

LAYERS = {"llama": 4, "gemma2": 3}
NEW = 16


@pytest.fixture(scope="module")
def plain(random_text):
    """`plain(model, seed)`: a prompt [1, 7] and the tokens Hugging Face decodes greedily from it."""

    def decode(model, seed):
        prompt = random_text(1, 7, seed)
        found = model.backbone_model.generate(prompt, max_new_tokens=NEW, do_sample=False, pad_token_id=0)
        return prompt, found[0, 7:].tolist()

    return decode


@pytest.mark.parametrize("family", LAYERS)
def test_text_is_that_of_full_depth(family, shared_model, plain):
    """T-LS7, T-SS1: whatever the exit layer and the number of drafts, rejected, half accepted or accepted whole."""
    model, outcomes = shared_model("layerskip", family), set()
    for seed in range(2):
        prompt, expected = plain(model, seed)
        for exit_layer in range(1, LAYERS[family] + 1):
            for drafts in (1, 3, 30):
                found = self_speculate(model, prompt, draft_dial=exit_layer, drafts=drafts, max_new_tokens=NEW)
                assert found.tokens == [expected], (seed, exit_layer, drafts)
                if exit_layer < LAYERS[family]:
                    outcomes |= {(each.accepted > 0, each.accepted < each.drafted) for each in found.rounds[0]}
    assert outcomes >= {(False, True), (True, True), (True, False)}  # otherwise the above says little


@pytest.mark.parametrize("drafts", [1, 3, 5])
@pytest.mark.parametrize("family", LAYERS)
def test_full_depth_accepts_its_own_drafts(family, drafts, shared_model, random_text):
    """T-LS8, T-SS2: acceptance is 1 when E = L, d + 1 tokens a round; at E = 1 the same prompts are refused some."""
    model, wrong = shared_model("layerskip", family), 0
    for seed in range(4):
        prompt = random_text(1, 7, seed)
        settings = {"drafts": drafts, "max_new_tokens": 1 + 2 * (drafts + 1)}
        found = self_speculate(model, prompt, draft_dial=LAYERS[family], **settings)
        assert [(each.drafted, each.accepted) for each in found.rounds[0]] == [(drafts, drafts)] * 2
        assert found.accepted == found.drafted == 2 * drafts
        shallow = self_speculate(model, prompt, draft_dial=1, **settings)
        wrong += shallow.drafted - shallow.accepted
    assert wrong > 0


@torch.no_grad()
@pytest.mark.parametrize("executor", ["packed", "masked"])
@pytest.mark.parametrize("family", LAYERS)
def test_cache_after_each_round(family, executor, shared_model, random_text):
    """T-LS9, T-SS4: a round adds the token that waited and the accepted ones, so that the cache holds the prompt and
    all new tokens but the last. What it holds: test_speculation_batches.py.
    """
    for new in range(1, 12):
        for exit_layer in (1, LAYERS[family] - 1):
            model, prompt = shared_model("layerskip", family), random_text(1, 7, seed=5)
            model.executor = executor
            found = self_speculate(model, prompt, draft_dial=exit_layer, drafts=3, max_new_tokens=new, keep_caches=True)
            before = 7
            for each in found.rounds[0]:
                assert each.cached == before + 1 + each.accepted
                before = each.cached
            assert len(found.tokens[0]) == new == 1 + found.accepted + len(found.rounds[0])
            assert before == found.caches[0].get_seq_length() == 7 + new - 1


def test_penalties_of_a_generation_config_are_for_whoever_asks_for_them(shared_model, random_text, monkeypatch):
    model, prompt = shared_model("layerskip"), random_text(1, 7)
    monkeypatch.setattr(model.backbone_model.generation_config, "repetition_penalty", 9.0)
    expected = new_tokens(model, prompt, max_new_tokens=NEW)
    assert self_speculate(model, prompt, draft_dial=1, drafts=3, max_new_tokens=NEW).tokens == expected
    assert new_tokens(model, prompt, max_new_tokens=NEW, processors=logits_processors(model)) != expected


def test_ends(shared_model, random_text):
    """T-LS7: an end token is the last one of the text, whether it was drafted (and then stays cached) or not."""
    model, prompt = shared_model("layerskip"), random_text(1, 7)
    free = new_tokens(model, prompt, max_new_tokens=NEW)[0]
    cached = set()
    for end in set(free):
        expected = free[: free.index(end) + 1]
        for exit_layer in (1, 3, 4):
            settings = {"drafts": 3, "max_new_tokens": NEW, "eos_token_ids": [end], "keep_caches": True}
            found = self_speculate(model, prompt, draft_dial=exit_layer, **settings)
            assert found.tokens == [expected]
            cached.add(found.caches[0].get_seq_length() - 7 - len(expected))
    assert cached == {-1, 0}


@pytest.mark.parametrize(("length", "new", "expected"), [(60, 20, 4), (63, 20, 1), (7, 0, 0), (7, 1, 1), (7, 2, 2)])
def test_room(shared_model, random_text, length, new, expected):
    """T-LS7: neither drafts nor text outgrow the context of 64 tokens or `max_new_tokens`."""
    model, prompt = shared_model("layerskip"), random_text(1, length)
    for exit_layer in (1, 4):
        found = self_speculate(model, prompt, draft_dial=exit_layer, drafts=5, max_new_tokens=new)
        assert found.tokens == new_tokens(model, prompt, max_new_tokens=new)
        assert len(found.tokens[0]) == expected
        written = 1
        for each in found.rounds[0]:
            assert written + each.drafted + 1 <= expected
            written += each.accepted + 1


def test_everything_is_booked(shared_model, random_text):
    """T-LS7: exact is not free: the ledger has drafts and verification, together more than plain decoding."""
    model, prompt = shared_model("layerskip"), random_text(1, 7)
    new_tokens(model, prompt, max_new_tokens=NEW)
    plain = model.ledger.total_macs()
    for exit_layer in (1, 2, 4):
        model.reset_ledger()
        found = self_speculate(model, prompt, draft_dial=exit_layer, drafts=3, max_new_tokens=NEW)
        drafting, rounds = found.books["draft"].counts()["decode"], len(found.rounds[0])
        assert drafting["tokens"] == drafting["calls"] == found.drafted
        assert drafting["executed"] == [[found.drafted * (layer < exit_layer)] * 2 for layer in range(4)]
        verifying, shared = found.books["verification"].counts()["decode"], min(exit_layer, 3)
        verified = found.drafted + rounds  # T-SV1: d + 1 tokens a round in all layers of draft and verification
        assert verifying["executed"] == [[rounds if layer < shared else verified] * 2 for layer in range(4)]
        total = sum(part.total_macs() for part in found.books.values())
        assert model.ledger.total_macs() == pytest.approx(total, rel=1e-12) and total > plain


def test_the_dial_comes_back(shared_model, random_text, monkeypatch):
    """T-LS7: also after an error, whoever of the two failed; the text does not depend on it."""
    model, prompt = shared_model("layerskip"), random_text(1, 7)
    expected = new_tokens(model, prompt, max_new_tokens=6)
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
        ({"drafts": 0}, "at least 1, got 0.*model.generate"),
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
    with pytest.raises(UsageError, match=r"than its 12.*session of 13"):
        cache.rewind(cache.session.after(ids[:, :1]))
    with pytest.raises(UsageError, match="own 2 rows, got one of 1"):
        AdaptiveCache(2, ids.device, "evict", ragged=True).rewind(cache.session)
