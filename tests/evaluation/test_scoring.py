"""Requests that share a context get the scores, and the ledger the savings, of requests that run one by one."""

from __future__ import annotations

import random

import pytest
import torch

from adaptive_bench import registry
from adaptive_bench.evaluation.scoring import Scored, Scorer, shared, wholes

CAUSAL = [name for name in registry.names("methods") if name not in ("base", "gated")]
CAUSAL += ["random_skip[kv=copy_below]", "random_skip[kv=evict]", "gateskip[kv=copy_below]", "free[kv=defer]"]
CAUSAL += ["prompt_router[labels=search,simulations=8]", "static_depth@paper"]
DEPENDENT = ["mod@paper", "gateskip@paper", "dash_halting@paper"]


def _requests():
    """Contexts with one to four continuations of one to nine tokens: equal ones, nested ones, and one that is cut."""
    draw = random.Random(0)

    def text(length):
        return tuple(draw.randrange(3, 97) for _ in range(length))

    pairs = []
    for length in (31, 12, 12, 5, 3, 20):
        context = text(length)
        pairs += [(context, text(draw.randrange(1, 10))) for _ in range(draw.randrange(2, 5))]
    context = text(18)
    pairs += [(context, text(1)), (context, text(1)), (context, text(6))]
    context, begun = text(9), text(5)
    pairs += [(context, begun), (context, begun), (context, (*begun[:-1], 7)), (context, (*begun, 8))]
    pairs += [(text(14), text(3)), (text(90), text(4)), (text(8), text(1))]
    draw.shuffle(pairs)
    return [Scored(place, *pair) for place, pair in enumerate(pairs)]


def _outcome(model, batch_size, requests):
    """Answers by place, the ledger's savings and phases, and tokens fed."""
    model.reset_ledger()
    answers, tokens = {}, 0
    for some in requests:
        scorer = Scorer(model, batch_size, lambda call: call())
        answers.update({place: (score, greedy) for batch in scorer.score(some) for place, score, greedy in batch})
        tokens += scorer.tokens
    report = model.compute_report()
    assert report["decode"]["tokens"] is None
    counts = {name: report["counts"]["prefill"][name] for name in ("dense_macs", "eligible", "executed", "tokens")}
    macs = {name: value for name, value in report["macs"].items() if name != "waste.dense"}
    saved = {axis: report[part][axis] for part in ("saved", "prefill") for axis in ("tokens", "core", "net")}
    return [answers[place] for place in sorted(answers)], (saved, macs, counts), tokens


@pytest.mark.parametrize(
    ("spec", "family"),
    [*((spec, "llama") for spec in CAUSAL), ("random_skip[kv=evict]", "gemma2"), ("free", "gemma2")],
)
@torch.no_grad()
def test_sharing_changes_neither_scores_nor_savings(spec, family, shared_model):
    model, requests = shared_model(spec, family), _requests()
    model.dial = model.method.dial_for(min(0.3, model.method.max_saved_tokens))
    alone, (saved, macs, counts), tokens = _outcome(model, 1, [[request] for request in requests])
    if spec != "dense":
        assert saved["tokens"] > 0.05
    for batch_size in (1, 6, 64):
        found, (found_saved, found_macs, found_counts), fed = _outcome(model, batch_size, [requests])
        assert [score for score, _ in found] == pytest.approx([score for score, _ in alone], abs=1e-4)
        assert [greedy for _, greedy in found] == [greedy for _, greedy in alone]
        assert found_saved == pytest.approx(saved, abs=1e-9)
        assert found_macs == pytest.approx(macs, rel=1e-9)
        for name, value in counts.items():
            torch.testing.assert_close(torch.tensor(found_counts[name]), torch.tensor(value), rtol=1e-9, atol=0)
        assert fed < 0.7 * tokens


@pytest.mark.parametrize("spec", DEPENDENT)
@torch.no_grad()
def test_methods_that_look_beyond_the_earlier_text_keep_whole_passes(spec, shared_model):
    model, requests = shared_model(spec), _requests()
    assert not model.is_causal
    model.dial = model.method.dial_for(0.3)
    lengths: list[int] = []
    forward = model.forward
    model.forward = lambda **given: (lengths.append(given["input_ids"].shape[0]), forward(**given))[1]
    try:
        _, _, tokens = _outcome(model, 4, [requests])
    finally:
        del model.forward
    passes = wholes(requests, model.backbone.context_length)
    assert tokens == sum(len(one.token_ids) for one in passes)
    assert sum(lengths) == len(passes)
    assert max(lengths) <= 4


def test_only_what_fits_and_pays_is_shared():
    context = (5, 6, 7, 8)
    twice = [Scored(0, context, (9, 10)), Scored(1, context, (9, 11)), Scored(2, context, (9, 10))]
    assert shared(twice, 64) == ([], twice)  # one sequence for all of them
    other = Scored(3, context, (12,))
    (one,), others = shared([*twice, other], 64)
    assert others == []
    assert list(one.tails) == [(9,), ()]
    assert one.requests == (*twice, other)
    assert shared([*twice, other], 4) == ([], [*twice, other])
    (whole, longer) = wholes([*twice, other], 64)
    assert (whole.token_ids, whole.requests) == (context, (other,))
    assert (longer.token_ids, longer.scored, longer.requests) == ((*context, 9), 2, tuple(twice))
