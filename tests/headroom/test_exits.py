"""Exits of tokens, by definition and on models whose deep layers do nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.headroom.exits import derangement, first_exits, lucky_exits, stable_exits
from adaptive_bench.headroom.replay import DenseText, replay

PREDICTED = st.integers(1, 5).flatmap(
    lambda layers: st.lists(st.lists(st.integers(0, 2), min_size=layers, max_size=layers), min_size=1, max_size=8)
)


@given(PREDICTED)
def test_exits_are_what_their_definition_says(rows):
    predicted = torch.tensor(rows).T
    first, stable = first_exits(predicted).tolist(), stable_exits(predicted).tolist()
    for row, one, other in zip(rows, first, stable, strict=True):
        assert one == 1 + row.index(row[-1])
        assert other == min(n for n in range(1, len(row) + 1) if len({*row[n - 1 :]}) == 1)
        assert other >= one
    for one, row, target in zip(first_exits(predicted, torch.ones(len(rows))).tolist(), rows, [1] * 99, strict=False):
        assert one == (1 + row.index(target) if target in row else len(row))


@given(st.integers(2, 40), st.integers(0, 5))
def test_a_derangement_leaves_nobody_in_place(count, seed):
    order = derangement(count, seed)
    assert sorted(order.tolist()) == list(range(count))
    assert not (order == torch.arange(count)).any()


def test_exits_towards_another_token_are_later(shared_backbone, texts):
    dense = DenseText.of(shared_backbone("llama"), texts, rows=3)
    assert dense.lucky(0).float().mean() > dense.first.float().mean()
    assert torch.equal(dense.lucky(0), lucky_exits(dense.predicted, 0))


@pytest.mark.parametrize("start", [1, 2, 3])
def test_nobody_exits_after_the_layers_that_do_something(silent, texts, start):
    """T-OR1: layers from `start` on add nothing."""
    dense = DenseText.of(silent(range(start, 4)), texts, rows=2)
    assert (dense.first <= dense.stable).all()
    assert (dense.stable <= start).all()
    assert dense.predicted.shape == (4, sum(len(text.answer) for text in texts))


def test_everybody_stays_where_only_the_last_layer_matters(silent, texts):
    """T-OR2: before the last layer every token is predicted to repeat itself; the last one turns it around."""
    backbone = silent(range(3))
    with torch.no_grad():
        backbone.lm_head.weight = torch.nn.Parameter(backbone.model.embed_tokens.weight.clone())
        backbone.model.norm.weight.fill_(1.0)
        backbone.model.layers[3].self_attn.o_proj.weight.zero_()
        mlp = backbone.model.layers[3].mlp
        mlp.down_proj.weight.mul_(50.0)
    dense = DenseText.of(backbone, texts, rows=5)
    before, last = dense.predicted[:-1], dense.predicted[-1]
    moved = (before != last).all(dim=0)
    assert moved.float().mean() > 0.5
    assert (dense.first[moved] == 4).all()
    assert (dense.stable[moved] == 4).all()


def test_what_layers_predict_is_the_head_on_the_hidden_states_of_hugging_face(shared_backbone, texts):
    backbone = shared_backbone("llama")
    dense = DenseText.of(backbone, texts, rows=1)
    ordered = sorted(texts, key=lambda text: len(text.read), reverse=True)
    expected = []
    for text in ordered:
        with torch.no_grad():
            out = backbone(torch.tensor([text.read]), output_hidden_states=True)
            states = [backbone.model.norm(state) for state in out.hidden_states[1:-1]] + [out.hidden_states[-1]]
            logits = torch.stack([backbone.lm_head(state)[0, len(text.prompt) - 1 :] for state in states])
        expected.append(logits.argmax(dim=-1))
    assert torch.equal(dense.predicted, torch.cat(expected, dim=1))


@pytest.mark.parametrize("waits_before", [1, 2, 3])
def test_deferred_exits_give_the_dense_text_and_save_the_tail_alone(shared_backbone, texts, waits_before):
    """T-OR3, exact K,V: a layer is left out for those tokens of a text after which nobody goes deep any more."""
    backbone = shared_backbone("llama")
    dense = DenseText.of(backbone, texts, rows=2)
    found = replay(backbone, dense, dense.stable, "defer", waits_before)
    assert found.agreement == 1.0
    tails, counted = 0, 0
    for text in range(int(dense.texts.max()) + 1):
        exits = dense.stable[dense.texts == text]
        tails += int((exits <= waits_before).flip(0).cumprod(0).sum())
    for batch in dense.batches:
        counted += int(batch.attention_mask.sum())
    assert found.saved["tokens"] == pytest.approx(tails * (4 - waits_before) / (4 * counted))


def test_exits_given_to_others_save_as_much_and_keep_less(shared_backbone, texts):
    backbone = shared_backbone("llama")
    dense = DenseText.of(backbone, texts, rows=2)
    assert 1 < dense.stable.float().mean() < 4
    own = replay(backbone, dense, dense.stable, "recompute")
    others = replay(backbone, dense, dense.stable[derangement(len(dense.stable), 0)], "recompute")
    assert others.saved["tokens"] == pytest.approx(own.saved["tokens"], abs=1e-12)
    assert others.saved["net"] == pytest.approx(own.saved["net"], abs=0.01)
    assert others.agreement < own.agreement


def test_a_replay_in_which_nobody_leaves_is_the_dense_run(shared_backbone, texts):
    backbone = shared_backbone("llama")
    dense = DenseText.of(backbone, texts, rows=2)
    found = replay(backbone, dense, torch.full_like(dense.stable, 4), "recompute")
    assert (found.agreement, found.saved["net"]) == (1.0, 0.0)
