"""Speculation with several rows: each accepts its own number of drafts; text and cache are those of plain decoding."""

import numpy as np
import pytest
import torch
from covering import each_once
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench.model import speculative_decoding as speculation
from adaptive_bench.model.generation import new_tokens, padded
from adaptive_bench.model.speculative_decoding import Drafts, self_speculate
from adaptive_bench.registry import names

NEW, LENGTHS = 12, (7, 3, 9, 5, 7)
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2")
SHARING = [
    (spec, executor)
    for executor in ("packed", "masked")
    for spec in ("layerskip", "static_depth", "gateskip[kv=copy_below]", "free[kv=defer]")
]
SPECS = sorted({*names("methods")} - {"dense", "base", "gated"})


@pytest.fixture(scope="module")
def prompts(random_text):
    """`prompts(rows)`: ids and mask [rows, 9] of prompts of different lengths, padded on the left."""

    def make(rows):
        texts = [random_text(1, length, seed)[0].tolist() for seed, length in enumerate(LENGTHS[:rows])]
        return padded(texts, torch.device("cpu"), left=True)

    return make


def held(cache, layer):
    """Positions, keys and values of what the only row of a cache shows at a layer, by position."""
    positions = cache.stores[layer].table.visible()[0]
    order = [int(slot) for slot in positions.argsort() if positions[slot] >= 0]
    return positions[order], *(part[0, :, order] for part in cache.stores[layer].view())


def check_caches(model, ids, mask, found):
    """T-SS4: every row's cache is that of the full model reading prompt and new tokens one by one."""
    model.dial = model.method.dial.skip_nothing
    for row, (tokens, ours) in enumerate(zip(found.tokens, found.caches, strict=True)):
        prompt = ids[row][mask[row].bool()]
        text = torch.cat([prompt, torch.tensor(tokens, dtype=torch.long)])[: ours.get_seq_length()]
        fresh = model(prompt[None], use_cache=True).past_key_values
        for at in range(len(prompt), len(text)):
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
    """T-SS1, T-LS7: whatever is shared with the draft; rows stop at different places and leave the batch."""
    model = shared_model(spec, family)
    if spec.startswith("gateskip") and len({*model.backbone.windows}) > 1:
        model = shared_model("gateskip", family)
    ids, mask = prompts(5)
    model.executor, model.dial = executor, model.method.dial.skip_nothing
    free = new_tokens(model, ids, mask, max_new_tokens=NEW)
    end = free[0][4]  # ends some rows early, inside a draft or not
    expected = [row[: row.index(end) + 1] if end in row else row for row in free]
    accepted = set()
    for drafts in (2, 3, 20):
        found = self_speculate(
            model,
            ids,
            mask,
            draft_dial=model.method.dial_for(0.3),
            drafts=drafts,
            max_new_tokens=NEW,
            eos_token_ids=[end],
            keep_caches=True,
        )
        assert found.tokens == expected
        check_caches(model, ids, mask, found)
        accepted |= {each.accepted for row in found.rounds for each in row}
    model.executor = None
    assert len(accepted) > 1


@torch.no_grad()
@pytest.mark.parametrize("spec", SPECS)
def test_every_method(spec, shared_model, prompts):
    """Which layers are shared is right for each method, and rows are decoded as they are alone."""
    model = shared_model(spec)
    ids, mask = prompts(3)
    model.dial = model.method.dial.skip_nothing
    expected = new_tokens(model, ids, mask, max_new_tokens=NEW)
    dial = model.method.dial_for(0.3)
    settings = {"draft_dial": dial, "drafts": 4, "max_new_tokens": NEW, "keep_caches": True}
    found = self_speculate(model, ids, mask, **settings)
    assert found.tokens == expected
    check_caches(model, ids, mask, found)
    for row in range(3):
        alone = self_speculate(model, ids[row : row + 1], mask[row : row + 1], **settings)
        assert alone.tokens == [expected[row]]


def test_layers_below_the_exit_run_once(shared_model, prompts):
    """T-SV1: what LayerSkip drafted below its exit is not run again, nor what static depth drafted below the layer that
    it leaves out; a method that looks at states shares nothing. A row's last column goes through all layers.
    """
    ids, mask = prompts(4)
    for spec, dial, shared in (("layerskip", 2, 2), ("static_depth", 1, 2), ("calm", None, 0)):
        model = shared_model(spec)
        dial = model.method.dial_for(0.3) if dial is None else dial
        found = self_speculate(model, ids, mask, draft_dial=dial, drafts=3, max_new_tokens=NEW)
        rounds = sum(map(len, found.rounds))
        executed = found.books["verification"].counts()["decode"]["executed"]
        assert executed == [[rounds if layer < shared else found.drafted + rounds] * 2 for layer in range(4)]


@torch.no_grad()
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_pattern_of_acceptance(data, shared_model, prompts):
    """Drafts of any length that are right up to any place: text and cache are those of plain decoding."""
    spec = data.draw(st.sampled_from(["gateskip", "mod"]))
    rows = data.draw(st.integers(1, 4))
    model, (ids, mask) = shared_model(spec), prompts(rows)
    model.dial = model.method.dial.skip_nothing
    expected = new_tokens(model, ids, mask, max_new_tokens=NEW)
    wanted = []

    def drafted(model, cache, waiting, most, ends):
        guesses = []
        for row, room in enumerate(most):
            text = _text_of(run, row)
            count = data.draw(st.integers(0, room))
            right = data.draw(st.integers(0, count))
            after = expected[text][len(run.texts[row].tokens) :]
            guess = [token if n < right else (token + 1) % 32 for n, token in enumerate(after[:count])]
            wanted.append((text, count, right))
            guesses.append(guess)
        width = max(map(len, guesses))
        valid = np.array([[n < len(guess) or n == width for n in range(width + 1)] for guess in guesses])
        columns = torch.zeros(valid.shape, dtype=torch.long)
        for row, guess in enumerate(guesses):
            columns[row, torch.from_numpy(valid[row])] = torch.tensor([waiting[row], *guess])
        return Drafts(columns, valid, guesses)

    def _text_of(run, row):
        return next(n for n, text in enumerate(texts) if text is run.texts[row])

    original = speculation._Run.read_prompts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speculation, "draft", drafted)

        def remember(self, given_texts, *arguments):
            nonlocal run, texts
            run, texts = self, given_texts
            original(self, given_texts, *arguments)

        run = texts = None
        patch.setattr(speculation._Run, "read_prompts", remember)
        found = self_speculate(model, ids, mask, draft_dial=model.dial, drafts=5, max_new_tokens=NEW, keep_caches=True)
    assert found.tokens == expected
    done = [(text, each.drafted, each.accepted) for text, row in enumerate(found.rounds) for each in row]
    assert sorted(done) == sorted(wanted)
    check_caches(model, ids, mask, found)


@torch.no_grad()
def test_rows_close_up(shared_model, prompts):
    """A row that accepts everything beside one that accepts nothing leaves it slots that show nothing: not for long."""
    model, (ids, mask) = shared_model("gateskip"), prompts(2)
    cache = model(ids, mask, use_cache=True).past_key_values
    text = torch.randint(3, 30, (2, 4), generator=torch.Generator().manual_seed(0))
    kept = np.array([[True, True, True, True], [True, False, False, False]])
    for _ in range(10):
        before = cache.session.copy()
        model(text, past_key_values=cache, use_cache=True)
        cache.rewind(before.after(text, kept))
        kept = kept[::-1].copy()
        cache.close_up()
        longest = int(cache.session.host_lengths.max())
        assert cache.stores[0].table.used < 2 * longest
        for row in range(2):
            shown = cache.stores[0].table.visible()[row]
            assert sorted(shown[shown >= 0].tolist()) == list(range(int(cache.session.host_lengths[row])))
