"""How generation starts, stops and refuses (X17); what it generates is tested against full forwards elsewhere."""

import pytest
import torch

from adaptive_bench.model.generation import new_tokens, sampler


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


def test_the_context_is_never_outgrown(model, random_text):
    """The tiny context holds 64 tokens."""
    assert len(new_tokens(model, random_text(1, 60), max_new_tokens=20)[0]) == 4


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
