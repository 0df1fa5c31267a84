"""How generation starts, stops and refuses (X17), and prompts that join a running batch; what it generates is tested
against full forwards elsewhere.
"""

import pytest
import torch

from adaptive_bench import registry
from adaptive_bench.errors import UsageError
from adaptive_bench.model.generation import generate_queue, new_tokens, padded, sampler


@pytest.fixture
def model(shared_model):
    model = shared_model("random_skip")
    model.dial = 0.2
    return model


def test_stops(model, random_text):
    """A row ends after `max_new_tokens`, after an end token (kept), or where `stop` says so, whichever is first."""
    prompt = random_text(1, 5)
    free = new_tokens(model, prompt, max_new_tokens=8)[0]
    assert len(free) == 8
    assert new_tokens(model, prompt, max_new_tokens=3)[0] == free[:3]
    first = free.index(free[4]) + 1
    assert new_tokens(model, prompt, max_new_tokens=8, eos_token_ids=(free[4],))[0] == free[:first]
    assert new_tokens(model, prompt, max_new_tokens=8, stop=lambda new: len(new) == 2)[0] == free[:2]
    assert new_tokens(model, prompt, max_new_tokens=0) == [[]]


def test_stop_sees_one_row_at_a_time(model, random_text):
    """`stop` is asked once per row and token, with that row's new tokens."""
    asked = []
    results = new_tokens(model, random_text(2, 5), max_new_tokens=3, stop=lambda new: asked.append(list(new)))
    assert asked == [row[:n] for n in (1, 2, 3) for row in results]


def test_rows_that_end_at_once_cost_a_prefill_only(model, random_text):
    """X9: when every row is finished nothing more is computed."""
    new_tokens(model, random_text(3, 5), max_new_tokens=8, stop=lambda new: True)
    counts = model.compute_report()["counts"]
    assert counts["prefill"]["tokens"] == 15 and counts["decode"]["calls"] == 0


def test_padding_takes_no_room_in_the_context(model, random_text):
    """X5: a row is as long beside a longer one as it is alone."""
    ids = random_text(2, 60)
    mask = torch.ones_like(ids)
    mask[0, :55] = 0
    short, long = new_tokens(model, ids, mask, max_new_tokens=20)
    assert len(short) == 20 and len(long) == 4
    assert short == new_tokens(model, ids[:1, 55:], max_new_tokens=20)[0]
    over_padded = torch.cat([torch.zeros(2, 10, dtype=torch.long), ids], dim=1)
    mask = torch.cat([torch.zeros(2, 10, dtype=torch.long), mask], dim=1)
    assert new_tokens(model, over_padded, mask, max_new_tokens=20) == [short, long]


def test_sampling(model, random_text):
    """X12: draws depend on the seed alone; a tiny nucleus is the greedy choice."""
    prompt = random_text(2, 5)

    def draw(temperature=1.0, top_p=1.0, seed=0):
        return new_tokens(model, prompt, max_new_tokens=6, choose=sampler(temperature, top_p, seed, prompt.device))

    before = torch.get_rng_state()
    draws = [draw(seed=seed) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2] and torch.equal(torch.get_rng_state(), before)
    assert draw(top_p=1e-6) == draw(temperature=1e-4) == new_tokens(model, prompt, max_new_tokens=6)


# Prompts that join a running batch become the texts they become alone, and are counted alike.


LENGTHS = (17, 3, 11, 11, 1, 8, 20, 2, 5, 14)
SPECS = [name for name in registry.names("methods") if name not in ("base", "gated")]
SPECS += ["random_skip[kv=copy_below]", "random_skip[kv=evict]", "prompt_router[labels=search,simulations=8]"]


def stop(new):
    return sum(new) % 6 == 0


@pytest.mark.parametrize(
    ("spec", "executor", "family"),
    [
        *((spec, "packed", "llama") for spec in SPECS),
        ("random_skip[kv=evict]", "masked", "llama"),
        ("random_skip[kv=evict]", "packed", "mistral"),
        ("gateskip[kv=copy_below]", "packed", "mistral"),
    ],
)
@torch.no_grad()
def test_texts_that_join_are_those_written_alone(spec, executor, family, shared_model, random_text):
    """X4, X9, X17: whoever ends when, in a fixed batch and a refilled one; padding and ended rows are counted as waste
    alone.
    """
    model, text = shared_model(spec, family), random_text(len(LENGTHS), max(LENGTHS))
    model.executor = executor
    model.dial = model.method.dial_for(min(0.3, model.method.max_saved_tokens))
    prompts = [text[row, :length].tolist() for row, length in enumerate(LENGTHS)]
    settings = {"max_new_tokens": 12, "stop": stop, "eos_token_ids": (7,)}
    alone = [new_tokens(model, torch.tensor([prompt]), **settings)[0] for prompt in prompts]
    assert len(set(map(len, alone))) > 2, "the rows of this test should finish at different lengths"
    expected = model.compute_report()
    for rows in (1, 3, 8):
        model.reset_ledger()
        ended = []
        together = generate_queue(model, prompts, rows=rows, ended=ended.append, **settings)
        assert together == alone
        assert sum(ended) == len(prompts)
        found = model.compute_report()
        for part in ("saved", "prefill", "decode"):
            for axis in ("tokens", "core", "net"):
                assert found[part][axis] == pytest.approx(expected[part][axis], abs=1e-9)
        for phase, counts in found["counts"].items():
            for key in ("dense_macs", "eligible", "executed", "tokens"):
                assert counts[key] == expected["counts"][phase][key], (phase, key)
            needed = [[macs[:-1] for macs in part["macs"]] for part in (counts, expected["counts"][phase])]
            assert needed[0] == needed[1]
    model.reset_ledger()
    assert new_tokens(model, *padded(prompts, torch.device("cpu"), left=True), **settings) == alone


@torch.no_grad()
def test_slots_that_no_row_shows_are_dropped_when_rows_join(shared_model, random_text):
    model = shared_model("dense")
    cache = model(random_text(2, 12), torch.tensor([[0] * 8 + [1] * 4, [1] * 12]), use_cache=True).past_key_values
    cache.select_rows(torch.tensor([0]))
    cache.join(model(random_text(1, 6), use_cache=True).past_key_values)
    assert cache.batch == 2
    assert cache.store(0).table.used == 6
    assert cache.session.host_lengths.tolist() == [4, 6]


def test_caches_whose_tokens_wait_cannot_be_joined(shared_model, random_text):
    model = shared_model("free[kv=defer]")
    first, second = (model(random_text(1, 5), use_cache=True).past_key_values for _ in range(2))
    with pytest.raises(UsageError, match="not defer"):
        first.join(second)
