"""Skipping by position: a pattern that knows where a token stands and nothing else."""

from math import floor, sqrt

import pytest
import torch

from adaptive_bench.model.text_decisions import recorded_decisions

TRAINED = "position_skip[trained=true,share_end=0.5]"


@pytest.fixture
def skipped():
    """`skipped(model, ids, mask, **given)`: [2L, B, S] who skips in one call, and its output."""

    @torch.no_grad()
    def look(model, ids, mask=None, **given):
        with recorded_decisions(model.method) as decisions:
            output = model(ids, mask, **given)
        return ~torch.stack([decision.keep for _, decision in decisions]), output

    return look


@pytest.mark.parametrize("share", [0.05, 0.3, 0.75])
def test_the_pattern_is_that_of_the_formula(shared_model, random_text, skipped, share):
    model, ids = shared_model("position_skip"), random_text(2, 30)
    model.dial = share
    found, _ = skipped(model, ids)
    for site in range(8):
        for position in range(30):
            number = 0.5 + position * (sqrt(5) - 1) / 2 + site * (sqrt(2) - 1)
            assert found[site, :, position].tolist() == [number - floor(number) < share] * 2


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_close_to_the_share_skips_in_any_run_of_tokens_and_of_each_token_s_sites(
    make_model, random_text, skipped, share
):
    """Closer than draws come: 60 tokens of .2 have a standard deviation of 3.1."""
    model, ids = make_model("position_skip"), random_text(1, 160)
    model.dial = share
    found, _ = skipped(model, ids)
    for start in (0, 17, 100):
        assert (found[:, 0, start : start + 60].sum(dim=1) - 60 * share).abs().max() <= 3
    assert (found.sum(dim=0) - 8 * share).abs().max() <= 2
    assert found.double().mean().item() == pytest.approx(share, abs=0.01)


def test_neither_text_nor_seed_nor_document_has_a_say(make_model, random_text, skipped):
    one, other = make_model("position_skip", seed=1), make_model("position_skip", seed=2)
    one.dial = other.dial = 0.4
    ids = random_text(3, 20)
    found, _ = skipped(one, ids)
    assert torch.equal(found, found[:, :1].expand_as(found))
    again, _ = skipped(other, ids.flip(0), documents=torch.tensor([5, 6, 7]))
    assert torch.equal(found, again)


@torch.no_grad()
def test_training_has_the_pattern_of_evaluation_at_every_step(trainee, random_text, skipped):
    """So that a model can get used to it, as it cannot to draws."""
    model, ids = trainee(TRAINED, step=9, total_steps=10), random_text(2, 9)
    first, output = skipped(model, ids)
    model.begin_step(10, 10)  # same share: the schedule is over
    again, repeated = skipped(model, ids.flip(0))
    assert torch.equal(first, again) and first.any()
    assert torch.equal(output.logits, repeated.logits.flip(0))
    model.eval()
    model.dial = 0.5
    assert torch.equal(skipped(model, ids)[0], first)
    untrained, dense = trainee("position_skip"), trainee("dense")
    untrained.dial = 0.5
    assert torch.equal(untrained(ids).logits, dense(ids).logits)
