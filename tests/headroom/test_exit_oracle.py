"""The attainable exit oracle, run like any model."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.errors import UsageError
from adaptive_bench.headroom.exit_oracle import layer_predictions, online_exits, stable_exits
from adaptive_bench.model.generation import generate_queue
from adaptive_bench.model.interventions import prescribed_model, static_model

POLICIES = ("recompute", "copy_below", "evict")
LENGTH = 8


def _written(model, prompts):
    return generate_queue(model, prompts, rows=len(prompts), max_new_tokens=LENGTH)


@pytest.fixture
def prompts(random_text):
    rows = random_text(3, 9, seed=5).tolist()
    return [rows[0], rows[1][:6], rows[2][:8]]


@pytest.mark.parametrize("kv", POLICIES)
def test_layers_that_add_nothing_change_no_text(silent, prompts, kv):
    """T-OR3, attainable K,V: where the deep layers add nothing, every policy writes the dense text."""
    backbone = silent(range(1, 4))
    oracle = online_exits(backbone, kv)
    assert _written(oracle, prompts) == _written(static_model(backbone, ()), prompts)
    assert torch.cat(oracle.exits).max() == 1
    report = oracle.compute_report()
    assert report["decode"]["tokens"] == pytest.approx(0.75)
    assert report["counts"]["decode"]["tokens"] == len(prompts) * (LENGTH - 1)


@pytest.mark.parametrize("kv", POLICIES)
def test_the_ledger_counts_the_depths_and_nothing_else(shared_backbone, prompts, kv):
    oracle = online_exits(shared_backbone("llama"), kv)
    _written(oracle, prompts)
    exits = torch.cat(oracle.exits).double()
    tokens = sum(map(len, prompts)) + len(prompts) * (LENGTH - 1)
    assert len(exits) == len(prompts) * LENGTH
    saved = oracle.compute_report()["saved"]
    assert saved["tokens"] == pytest.approx(float((4 - exits).sum()) / (4 * tokens))
    assert 0 < saved["core"] < 1


@pytest.mark.parametrize("kv", POLICIES)
def test_each_exit_is_that_of_a_full_pass_on_the_cache_that_exits_left(shared_backbone, prompts, kv):
    """Against one token at a time and one text at a time, with the cache made again from the start for every token."""
    backbone = shared_backbone("llama")
    oracle = online_exits(backbone, kv)
    written = _written(oracle, prompts)
    for row, prompt in enumerate(prompts):
        depths = [int(column[row]) for column in oracle.exits]
        for step in range(LENGTH):
            tokens = [*prompt, *written[row][:step]]
            exits, choice = _reference(backbone, kv, tokens, len(prompt), depths[:step])
            assert (exits, choice) == (depths[step], written[row][step])


def _reference(backbone, kv, tokens, prompt, depths):
    """Exit and token of a full pass of the last token, earlier answer tokens having left at their depths."""
    model = prescribed_model(backbone, kv=kv)
    ids = torch.tensor([tokens])
    limits = torch.full((1, len(tokens)), 4)
    for step, depth in enumerate(depths):
        limits[0, prompt - 1 + step] = depth
    model.method.rule = lambda view: limits > view.site.layer
    predicted = layer_predictions(model, ids)[:, 0, -1]
    return int(stable_exits(predicted)), int(predicted[-1])


def test_given_texts_are_read_as_they_are_written(shared_backbone, prompts):
    """A log-likelihood call over a whole text is the token by token run over it."""
    backbone = shared_backbone("llama")
    oracle = online_exits(backbone)
    written = _written(oracle, prompts[:1])[0]
    decoded = torch.cat(oracle.exits).tolist()
    ids = torch.tensor([[*prompts[0], *written[:-1]]])
    oracle.exits.clear()
    oracle.reset_ledger()
    logits = oracle(ids, torch.ones_like(ids), logits_to_keep=LENGTH).logits
    assert torch.cat(oracle.exits).tolist() == decoded
    assert logits.argmax(dim=-1)[0].tolist() == written
    assert oracle.compute_report()["decode"]["tokens"] is None


def test_other_calls_are_refused(shared_backbone, random_text):
    oracle = online_exits(shared_backbone("llama"))
    ids = random_text(2, 5)
    right_padded = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    for arguments in (
        SimpleNamespace(logits_to_keep=0),
        SimpleNamespace(logits_to_keep=1, attention_mask=right_padded),
        SimpleNamespace(logits_to_keep=1, labels=ids),
    ):
        with pytest.raises(UsageError, match="exit oracle"):
            oracle(ids, **vars(arguments))


PREDICTED = st.integers(1, 5).flatmap(
    lambda layers: st.lists(st.lists(st.integers(0, 2), min_size=layers, max_size=layers), min_size=1, max_size=8)
)


@given(PREDICTED)
def test_stable_exits_are_what_their_definition_says(rows):
    found = stable_exits(torch.tensor(rows).T).tolist()
    for row, one in zip(rows, found, strict=True):
        assert one == min(n for n in range(1, len(row) + 1) if len({*row[n - 1 :]}) == 1)


@torch.no_grad()
def test_what_layers_predict_is_the_head_on_the_hidden_states_of_hugging_face(shared_backbone, random_text):
    backbone, ids = shared_backbone("llama"), random_text(2, 9)
    out = backbone(ids, output_hidden_states=True)
    states = [backbone.model.norm(state) for state in out.hidden_states[1:-1]] + [out.hidden_states[-1]]
    expected = torch.stack([backbone.lm_head(state).argmax(dim=-1) for state in states])
    assert torch.equal(layer_predictions(prescribed_model(backbone), ids), expected)
