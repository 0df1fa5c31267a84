"""Bytes a written token reads, from the counts behind its MACs: by hand, and held to what a batch of one reads."""

import pytest
import torch

from adaptive_bench.store.evaluation import token_bytes

Q_O, K_V, MLP, HEAD, GATE = 32 * 32 * 2, 32 * 16 * 2, 3 * 32 * 48, 32 * 97, 32 * 32  # tiny Llama
LAYERS, KEYS = 4, 2 * 16  # numbers of K and V together that a key has in a layer


@torch.no_grad()
def written(model, ids, prompt=4):
    """The report of a text of which all but a prompt is fed token by token, each alone."""
    model.reset_ledger()
    cache = model(ids[:, :prompt], use_cache=True).past_key_values
    for place in range(prompt, ids.shape[1]):
        model(ids[:, place : place + 1], past_key_values=cache, use_cache=True)
    return model.compute_report()


def test_the_dense_model_reads_all_weights_and_the_keys_before(shared_model, random_text):
    counts = written(shared_model("dense"), random_text(1, 7))["counts"]
    found = token_bytes(counts)
    weights = LAYERS * (Q_O + K_V + MLP) + HEAD
    assert found.read == found.dense == pytest.approx(4 * (weights + LAYERS * KEYS * (5 + 6 + 7) / 3))


@pytest.mark.parametrize("spec", ["gateskip", "random_skip", "calm", "layerskip", "mod", "skiplayer", "flexidepth"])
def test_weights_are_those_that_a_batch_of_one_reads(shared_model, random_text, spec):
    """The ledger books weights call by call; of one row and one token a call these are the same bytes."""
    model = shared_model(spec)
    model.saving = 0.3 if spec != "flexidepth" else 0.1
    report = written(model, random_text(1, 12, 5))
    counts = report["counts"]["decode"]
    found = token_bytes(report["counts"])
    keys = 4 * KEYS * sum(row[10] for row in counts["work"])  # seen
    assert found.read * 8 - keys == pytest.approx(counts["weight_bytes"], rel=1e-9)
    dense_keys = 4 * KEYS * sum(row[13] for row in counts["work"])
    assert found.dense * 8 - dense_keys == pytest.approx(counts["dense_weight_bytes"], rel=1e-9)


def test_who_shares_the_batch_changes_nothing(shared_model, random_text):
    model, ids = shared_model("random_skip"), random_text(3, 9, 2)
    model.saving = 0.3
    together = token_bytes(written(model, ids)["counts"])
    alone = [token_bytes(written(model, row)["counts"]) for row in ids.split(1)]
    assert together.read == pytest.approx(sum(one.read for one in alone) / 3)
    assert together.read < together.dense


def test_stored_sizes_take_the_place_of_fp32(shared_model, random_text):
    counts = written(shared_model("dense"), random_text(1, 7))["counts"]
    stored = {"attention": [1000] * LAYERS, "kv": [400] * LAYERS, "mlp": [2000] * LAYERS}
    found = token_bytes(counts, stored)
    assert found.read == pytest.approx(LAYERS * 3000 + 4 * (HEAD + LAYERS * KEYS * 6))
    assert found.dense == token_bytes(counts).dense


def test_what_does_not_follow_is_not_known(shared_model, random_text):
    counts = written(shared_model("dense"), random_text(1, 7))["counts"]
    read_at_once = {phase: dict(part) for phase, part in counts.items()}
    read_at_once["decode"]["tokens"] = 0
    older = {phase: {key: value for key, value in part.items() if key != "work"} for phase, part in counts.items()}
    uneven = {phase: dict(part) for phase, part in counts.items()}
    uneven["decode"]["macs"] = [[2 * value for value in counts["decode"]["macs"][0]], *counts["decode"]["macs"][1:]]
    for known in ({}, read_at_once, older, uneven):
        assert token_bytes(known) is None
