"""Prompts that join a running batch become the texts they become alone, and are counted alike."""

import pytest
import torch

from adaptive_bench.errors import UsageError
from adaptive_bench.model.generation import generate_queue, new_tokens, padded

LENGTHS = (17, 3, 11, 11, 1, 8, 20, 2, 5, 14)
SPECS = [
    "dense",
    "random_skip",
    "random_skip[kv=copy_below]",
    "random_skip[kv=evict]",
    "gateskip",
    "mod",
    "calm",
    "free",
    "skiplayer",
    "skipgpt",
    "prompt_router",
    "prompt_router[labels=search,simulations=8]",
    "d_llm",
    "dash_halting",
    "layerskip",
    "static_depth",
]


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


@torch.no_grad()
def test_a_fork_goes_on_and_its_origin_stays(shared_model, random_text):
    model, text = shared_model("random_skip[kv=evict]"), random_text(2, 9)
    model.dial = 0.3
    whole = model(text).logits
    cache = model(text[:, :6], use_cache=True).past_key_values
    for _ in range(2):
        fork = cache.fork(torch.tensor([1, 0, 1]))
        later = model(text[[1, 0, 1], 6:], past_key_values=fork, phase="prefill").logits
        torch.testing.assert_close(later, whole[[1, 0, 1], 6:], atol=1e-4, rtol=0)
        assert cache.get_seq_length() == 6


def test_caches_whose_tokens_wait_cannot_be_joined(shared_model, random_text):
    model = shared_model("free[kv=defer]")
    first, second = (model(random_text(1, 5), use_cache=True).past_key_values for _ in range(2))
    with pytest.raises(UsageError, match="not defer"):
        first.join(second)
