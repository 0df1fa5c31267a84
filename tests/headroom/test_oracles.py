"""The oracle per document and its floor, on scores whose truth is known, its knapsack against a solver; and the
attainable exit oracle.
"""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from adaptive_bench.errors import UsageError
from adaptive_bench.headroom.oracles import (
    SetScores,
    at_saving,
    choose,
    expected,
    layer_predictions,
    online_exits,
    stable_exits,
)
from adaptive_bench.model.generation import generate_queue
from adaptive_bench.model.interventions import prescribed_model, static_model
from adaptive_bench.tables.comparison import paired_difference

COSTS = np.array([1.0, 0.9, 0.8, 0.7])


def _askings(truths, seed, documents=400):
    """Right-or-wrong scores [D, K] in two askings, drawn with the given probabilities [D, K]."""
    draw = np.random.default_rng(seed)
    chances = np.broadcast_to(truths, (documents, len(COSTS)))
    halves = [(draw.random(chances.shape) < chances).astype(float) for _ in range(2)]
    priors = (draw.random(chances.shape) < chances).mean(axis=0)
    return SetScores(halves, [], priors, COSTS)


def test_noise_fools_the_gold_oracle_and_not_the_crossed_one():
    """T-OR5: all sets score alike and documents differ by luck."""
    crossed_intervals, gold = [], []
    for seed in range(20):
        read = at_saving(_askings(np.full(4, 0.6), seed), 0.15)
        found = paired_difference(read.crossed[None], read.floor[None])
        crossed_intervals.append(found.low <= 0 <= found.high)
        gold.append(paired_difference(read.gold[None], read.floor[None]))
    assert all(one.low > 0.2 for one in gold)
    assert sum(crossed_intervals) >= 17
    read = [at_saving(_askings(np.full(4, 0.6), seed), 0.15) for seed in range(100)]
    assert abs(np.mean([(one.crossed - one.floor).mean() for one in read])) < 0.005


def test_documents_that_differ_give_the_crossed_oracle_its_headroom():
    """Half of the documents need every layer, the others none in particular: known documents keep everything."""
    hard = np.array([1.0, 0.0, 0.0, 0.0])
    truths = np.where((np.arange(400) % 2 == 0)[:, None], hard, np.ones(4))
    read = at_saving(_askings(truths, 0), 0.15)
    assert read.crossed.mean() == pytest.approx(1.0)
    assert read.floor.mean() == pytest.approx(0.75, abs=0.03)  # half of the documents at 0.3 saved
    assert paired_difference(read.crossed[None], read.floor[None]).low > 0.15


def test_the_floor_is_chosen_on_validation_documents():
    scores = np.array([[1.0, 0.0, 1.0, 0.0]] * 10)
    read = at_saving(SetScores([scores], [], np.array([1.0, 0.9, 0.5, 0.2]), COSTS), 0.1)
    assert read.weights.tolist() == [0.0, 1.0, 0.0, 0.0]  # test documents prefer the third
    assert read.floor.tolist() == [0.0] * 10
    read = at_saving(SetScores([scores], [], np.array([1.0, 0.9, 0.5, 0.2]), COSTS), 0.05)
    assert read.weights == pytest.approx([0.5, 0.5, 0.0, 0.0])  # as many documents with either as it takes


def test_guesses_that_repeat_themselves_are_no_headroom():
    """Every set guesses one of four in its own way, and the same when asked again: gold crosses over, agreement not."""
    draw = np.random.default_rng(0)
    guesses, right = draw.integers(0, 4, (400, 4)), draw.integers(0, 4, 400)
    scores = (guesses == right[:, None]).astype(float)
    agrees = (guesses == guesses[:, :1]).astype(float)
    read = at_saving(SetScores([scores] * 2, [agrees] * 2, np.full(4, 0.25), COSTS), 0.1)
    by_gold = at_saving(SetScores([scores] * 2, [], np.full(4, 0.25), COSTS), 0.1)
    assert by_gold.crossed.mean() > 0.5
    assert abs(read.crossed.mean() - 0.25) < 0.07
    found = paired_difference(read.crossed[None], read.floor[None])
    assert found.low <= 0


def test_what_is_out_of_reach_and_one_asking_have_no_readings():
    found = _askings(np.full(4, 0.5), 0)
    assert at_saving(found, 0.31) is None
    assert at_saving(SetScores(found.scores[:1], [], found.priors, COSTS), 0.1).crossed is None
    with pytest.raises(UsageError, match="Askings share documents and sets"):
        SetScores([np.zeros((3, 4))], [], np.zeros(3), COSTS)


TABLES = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda shape: st.tuples(
        arrays(float, shape, elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        arrays(float, shape[1], elements=st.integers(1, 5).map(float)),
        st.floats(1.0, 5.0),
    )
)


@given(TABLES)
def test_the_value_is_that_of_the_linear_programme_and_at_most_a_step_above_whole_choices(table):
    scores, costs, budget = table
    weights = choose(scores, costs, budget)
    whole = [
        np.mean([row[k] for row, k in zip(scores, ks, strict=True)])
        for ks in product(range(len(costs)), repeat=len(scores))
        if np.mean([costs[k] for k in ks]) <= budget + 1e-9
    ]
    if weights is None:
        assert not whole
        return
    assert weights.sum(axis=1) == pytest.approx(1.0)
    assert (weights >= -1e-12).all()
    assert (weights @ costs).mean() <= budget + 1e-9
    assert (np.isclose(weights.max(axis=1), 1.0)).sum() >= len(scores) - 1
    value = expected(weights, scores).mean()
    count = len(scores)
    rows = np.kron(np.eye(count), np.ones(len(costs)))
    solved = linprog(
        -scores.flatten() / count,
        A_ub=[np.tile(costs, count) / count],
        b_ub=[budget],
        A_eq=rows,
        b_eq=np.ones(count),
        bounds=(0, 1),
    )
    assert value == pytest.approx(-solved.fun, abs=1e-7)
    assert max(whole) - 1e-9 <= value <= max(whole) + 1.0 / count + 1e-9


def test_of_equal_scores_the_cheaper_candidate_is_taken():
    assert choose([[1.0, 1.0, 1.0]], [3.0, 2.0, 4.0], 9.0).tolist() == [[0.0, 1.0, 0.0]]


# The attainable exit oracle, run like any model.
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
def test_each_exit_is_that_of_a_full_pass_on_the_cache_that_exits_left(shared_backbone, prompts, kv):
    """Against one token at a time and one text at a time, with the cache made again from the start for every token. The
    ledger counts the depths and nothing else.
    """
    backbone = shared_backbone("llama")
    oracle = online_exits(backbone, kv)
    written = _written(oracle, prompts)
    for row, prompt in enumerate(prompts):
        depths = [int(column[row]) for column in oracle.exits]
        for step in range(LENGTH):
            tokens = [*prompt, *written[row][:step]]
            exits, choice = _reference(backbone, kv, tokens, len(prompt), depths[:step])
            assert (exits, choice) == (depths[step], written[row][step])
    exits, saved = torch.cat(oracle.exits).double(), oracle.compute_report()["saved"]
    tokens = sum(map(len, prompts)) + len(prompts) * (LENGTH - 1)
    assert len(exits) == len(prompts) * LENGTH and 0 < saved["core"] < 1
    assert saved["tokens"] == pytest.approx(float((4 - exits).sum()) / (4 * tokens))


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
    for arguments in ({}, {"attention_mask": right_padded, "logits_to_keep": 1}, {"labels": ids, "logits_to_keep": 1}):
        with pytest.raises(UsageError, match="exit oracle"):
            oracle(ids, **arguments)


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
