"""Counts obey their laws whatever is measured, and one number that was changed breaks one."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench import registry
from adaptive_bench.engine.ledger import BUCKETS, Work, totals
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.store.count_laws import PHASES, broken_laws

# What laws bind; how often weights were read, and what only passed through a kernel, is free within bounds.
COLUMNS = ("ATTENTION_ELIGIBLE", "ATTENTION_KEPT", "MLP_ELIGIBLE", "MLP_KEPT", "SEEN", "DENSE_TOKENS", "DENSE_PAIRS")
PRICED = ("core.attn_q_o", "core.attn_kv", "core.attn_mix", "core.mlp")


@torch.no_grad()
def counted(model, ids):
    """Of padded prompts that are read, and of texts that end at different places."""
    mask = torch.arange(ids.shape[1]).expand_as(ids) >= torch.tensor([[0], [7], [ids.shape[1] - 1]])
    model.saving = min(0.3, model.method.max_saved_tokens)
    model.reset_ledger()
    model(ids, mask)
    new_tokens(model, ids, mask, max_new_tokens=6, stop=lambda new: new[-1] % 5 == 0)
    return model.ledger.counts()


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])
@pytest.mark.parametrize("method", sorted(registry.names("methods")))
def test_every_method_counts_by_them(method, family, shared_model, random_text, monkeypatch):
    model = shared_model(method, family)
    for executor in ("packed", "masked"):
        monkeypatch.setattr(model, "executor", executor)
        counts = counted(model, random_text(3, 20))
        assert not list(broken_laws(counts))
        assert not list(broken_laws({phase: counts[phase] for phase in PHASES} | {"decode": part_of_nothing(counts)}))


def part_of_nothing(counts):
    """The same phase without tokens, as of a task that only reads."""

    def zero(value):
        if isinstance(value, dict):
            return {name: zero(one) for name, one in value.items()}
        return list(map(zero, value)) if isinstance(value, list) else 0

    return zero(counts["decode"])


@pytest.fixture(scope="module")
def counts(shared_model, random_text):
    return counted(shared_model("random_skip[kv=recompute]"), random_text(3, 20))


def places(layers):
    """Every number of a phase that follows from others."""
    for layer in range(layers):
        yield from (("work", layer, getattr(Work, column)) for column in COLUMNS)
        yield from (("macs", layer, BUCKETS.index(bucket)) for bucket in PRICED)
        yield from ((name, layer, branch) for name in ("eligible", "executed") for branch in (0, 1))
        yield "dense_macs", layer
    yield ("tokens",)


@given(st.data())
def test_a_number_that_was_changed_breaks_one(counts, data):
    phase = data.draw(st.sampled_from(PHASES))
    *above, last = data.draw(st.sampled_from(list(places(len(counts["decode"]["work"])))))
    forged = copy.deepcopy(counts)
    place = forged[phase]
    for name in above:
        place = place[name]
    place[last] = place[last] * data.draw(st.sampled_from([0, 0.5, 0.99, 1.01, 2])) + (not place[last])
    assert list(broken_laws(forged))


@pytest.mark.parametrize(
    "forge",
    [
        lambda part: part["work"].pop(),
        lambda part: part["macs"].pop(),
        lambda part: part["macs"][0].pop(),
        lambda part: part.update(executed=[]),
        lambda part: part.update(dense_macs="many"),
        lambda part: part.update(tokens=None),
        lambda part: part.update(calls=0),
        lambda part: part.pop("runs"),
        lambda part: part["runs"].update(probe=-1.0),
        lambda part: part["runs"].update(head=float("nan")),
        lambda part: part.update(weight_bytes=float("inf")),
        lambda part: part["work"][0].__setitem__(Work.REPAIRED, 1e6),
        lambda part: part["work"][0].__setitem__(Work.ATTENTION_SLOTS, 0),
    ],
)
def test_what_no_ledger_writes_is_told(counts, forge):
    forged = copy.deepcopy(counts)
    forge(forged["prefill"])
    assert list(broken_laws(forged))


def test_early_counts_have_no_work_and_are_not_asked(counts):
    assert not list(broken_laws({phase: {"macs": counts[phase]["macs"]} for phase in PHASES}))


def test_a_report_is_what_its_counts_come_to(shared_model, random_text):
    model = shared_model("gateskip")
    counted(model, random_text(3, 20))
    report = model.compute_report()
    assert {name: report[name] for name in ("macs", "sites")} == totals(report["counts"])
