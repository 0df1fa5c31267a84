"""Self-speculative decoding is exact, and leaves the cache as if nothing had ever been drafted."""

import pytest
import torch
from covering import each_once
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench.errors import UsageError
from adaptive_bench.model import speculative_decoding as speculation
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.speculative_decoding import self_speculate
from adaptive_bench.model.tokenization import logits_processors
from adaptive_bench.registry import names

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


# Speculation shares layers between draft and verifier; text and cache are those of plain decoding.


WRITTEN, LENGTHS = 12, (7, 3, 9, 5)
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2")
SHARING = [
    (spec, executor)
    for executor in ("packed", "masked")
    for spec in ("layerskip", "static_depth", "gateskip[kv=copy_below]", "free[kv=defer]")
]
SPECS = sorted({*names("methods")} - {"dense", "base", "gated"})


@pytest.fixture(scope="module")
def prompts(random_text):
    """Prompts [1, S] of different lengths."""
    return [random_text(1, length, seed) for seed, length in enumerate(LENGTHS)]


def held(cache, layer):
    """Positions, keys and values of what the only row of a cache shows at a layer, by position."""
    positions = cache.stores[layer].table.visible()[0]
    order = [int(slot) for slot in positions.argsort() if positions[slot] >= 0]
    return positions[order], *(part[0, :, order] for part in cache.stores[layer].view())


def check_cache(model, prompt, found):
    """T-SS4: the cache is that of the full model reading prompt and new tokens one by one."""
    model.dial = model.method.dial.skip_nothing
    ours = found.cache
    text = torch.cat([prompt[0], torch.tensor(found.tokens, dtype=torch.long)])[: ours.get_seq_length()]
    fresh = model(prompt, use_cache=True).past_key_values
    for at in range(prompt.shape[1], len(text)):
        model(text[None, at : at + 1], past_key_values=fresh, use_cache=True)
    assert ours.stores.keys() == fresh.stores.keys()
    for layer in fresh.stores:
        (at, *mine), (expected, *theirs) = held(ours, layer), held(fresh, layer)
        assert at.tolist() == expected.tolist()
        for tensors in zip(mine, theirs, strict=True):
            torch.testing.assert_close(*tensors, atol=1e-4, rtol=1e-4)
    assert ours.session.copy().hash_sum.tolist() == fresh.session.copy().hash_sum.tolist()
    remembered = {} if model.spec.name == "prompt_router" else fresh.session.state  # by its dial at the prompt
    for name, value in remembered.items():
        assert torch.equal(ours.session.state[name], value)


@torch.no_grad()
@pytest.mark.parametrize(("family", "spec", "executor"), each_once(FAMILIES, *zip(*SHARING, strict=True)))
def test_text_and_cache(family, spec, executor, shared_model, prompts):
    """T-SS1, T-LS7: whatever is shared with the draft, and wherever the text ends, inside a draft or not."""
    model = shared_model(spec, family)
    if spec.startswith("gateskip") and len({*model.backbone.windows}) > 1:
        model = shared_model("gateskip", family)
    model.executor, model.dial = executor, model.method.dial.skip_nothing
    free = [new_tokens(model, prompt, max_new_tokens=WRITTEN)[0] for prompt in prompts]
    end = free[0][4]
    accepted = set()
    for prompt, text in zip(prompts, free, strict=True):
        expected = text[: text.index(end) + 1] if end in text else text
        for drafts in (2, 3, 20):
            dial = model.method.dial_for(0.3)
            how = {"draft_dial": dial, "drafts": drafts, "max_new_tokens": WRITTEN, "eos_token_ids": [end]}
            found = self_speculate(model, prompt, **how)
            assert found.tokens == expected
            check_cache(model, prompt, found)
            accepted |= {each.accepted for each in found.rounds}
    model.executor = None
    assert len(accepted) > 1


@torch.no_grad()
@pytest.mark.parametrize("spec", SPECS)
def test_every_method(spec, shared_model, prompts):
    """Which layers are shared is right for each method."""
    model = shared_model(spec)
    for prompt in prompts[:3]:
        model.dial = model.method.dial.skip_nothing
        (expected,) = new_tokens(model, prompt, max_new_tokens=WRITTEN)
        found = self_speculate(model, prompt, draft_dial=model.method.dial_for(0.3), drafts=4, max_new_tokens=WRITTEN)
        assert found.tokens == expected
        check_cache(model, prompt, found)


def test_layers_below_the_exit_run_once(shared_model, prompts):
    """T-SV1: what LayerSkip drafted below its exit is not run again, nor what static depth drafted below the layer that
    it leaves out; a method that looks at states shares nothing. The last token of a round goes through all layers.
    """
    for spec, dial, shared in (("layerskip", 2, 2), ("static_depth", 1, 2), ("calm", None, 0)):
        model = shared_model(spec)
        dial = model.method.dial_for(0.3) if dial is None else dial
        found = self_speculate(model, prompts[0], draft_dial=dial, drafts=3, max_new_tokens=WRITTEN)
        rounds, drafted = len(found.rounds), sum(each.drafted for each in found.rounds)
        executed = found.books["verification"].counts()["decode"]["executed"]
        assert executed == [[rounds if layer < shared else drafted + rounds] * 2 for layer in range(4)]


@torch.no_grad()
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_pattern_of_acceptance(data, shared_model, prompts):
    """Drafts of any length that are right up to any place: text and cache are those of plain decoding."""
    model = shared_model(data.draw(st.sampled_from(["gateskip", "mod"])))
    prompt = data.draw(st.sampled_from(prompts))
    model.dial = model.method.dial.skip_nothing
    (expected,) = new_tokens(model, prompt, max_new_tokens=WRITTEN)
    wanted, written = [], 1

    def drafted(model, cache, newest, most, ends):
        nonlocal written
        count = data.draw(st.integers(0, most))
        right = data.draw(st.integers(0, count))
        guesses = [token if n < right else (token + 1) % 32 for n, token in enumerate(expected[written:][:count])]
        wanted.append((count, right))
        written += right + 1
        return guesses

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speculation, "draft", drafted)
        found = self_speculate(model, prompt, draft_dial=model.dial, drafts=5, max_new_tokens=WRITTEN)
    assert found.tokens == expected
    assert [(each.drafted, each.accepted) for each in found.rounds] == wanted
    check_cache(model, prompt, found)
