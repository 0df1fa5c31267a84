"""The price of a target: which share of skipped token-branches saves so much on the matched axis."""

import pytest
import torch

from adaptive_bench.runs.training_work import _savings_at, price

SPECS = ["gateskip", "gateskip[shape=scalar]", "mod[every=1]", "skiplayer", "random_skip[trained=true]"]


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(97, (12, 24), generator=generator)
    later = (torch.arange(24) >= 10).expand_as(ids)
    return [{"input_ids": ids, "attention_mask": torch.ones_like(ids), "continuation_mask": later}]


@pytest.mark.parametrize("spec", SPECS)
def test_the_price_is_what_the_ledger_saves_at_it(make_model, batches, spec):
    model = make_model(spec).train()
    target = price(model, batches, 0.2, "net")
    assert target.priced["net"] == pytest.approx(0.2, abs=0.01)
    assert model.training and model.dial == model.method.dial.skip_nothing
    assert model.compute_report()["saved"]["tokens"] is None  # nothing of it stays in the books
    again = _savings_at(model.eval(), batches, target.tokens)
    assert (again["tokens"], again["net"]) == (pytest.approx(target.tokens, abs=0.02), pytest.approx(0.2, abs=0.02))


def test_a_vector_gate_has_to_skip_more_than_a_scalar_one(make_model, batches):
    vector, scalar = (price(make_model(spec), batches, 0.15, "net").tokens for spec in SPECS[:2])
    assert vector > scalar + 0.05


def test_tokens_need_no_price(make_model, batches):
    assert price(make_model("gateskip"), batches, 0.2, "tokens").tokens == 0.2


def test_a_dial_that_ends_before_the_target_says_so(make_model, batches):
    target = price(make_model("router_tuned_mod[layers=1]"), batches, 0.5, "net")
    assert target.priced["net"] < 0.2 and target.saving == 0.5


@pytest.mark.parametrize("spec", ["gateskip", "mod[every=1]", "random_skip[trained=true]"])
def test_the_schedule_ends_at_the_target(make_model, spec):
    model = make_model(spec).train()
    model.method.target = 0.3
    model.begin_step(10, 10)
    assert model.method.skip_share == pytest.approx(0.3)
    assert type(model.method).takes_target(model.method.config)


@pytest.mark.parametrize(
    "spec", ["gateskip[budget_end=0.9]", "mod[capacity=0.9]", "skiplayer[density=0.9]", "random_skip", "gated", "calm"]
)
def test_a_spec_may_fix_its_own_end(make_model, spec):
    model = make_model(spec)
    assert not type(model.method).takes_target(model.method.config)
