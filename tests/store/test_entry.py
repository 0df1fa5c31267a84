"""What an entry holds is read back as it was written, whatever of it is not known."""

import numpy as np
import pytest
import torch

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store.entry_files import read, write
from adaptive_bench.store.evaluation import token_bytes
from adaptive_bench.store.measured import (
    Documents,
    MeasuredPoint,
    MeasuredSweep,
    MeasuredTraining,
    Measurements,
    Text,
    TimeCurve,
)

TARGET = {"axis": "net", "saving": 0.2, "tokens": 0.21, "whole_layers": None, "priced": {"net": 0.19, "core": 1 / 3}}
BASE = MeasuredTraining("aa", "dense", 1, cost={"tokens": 3, "flops": 1e15 / 3, "parameters_added": 0}, steps=[1, 2])
SPARE = MeasuredTraining("bb", "mod[kv=evict]", 1, BASE, None, TARGET, {"seconds": 0.1}, [1, 2], [3.5, float("inf")])
CONDITIONS = {"model": "nano", "backbone": "ab", "recipe": "steps 3", "task_version": None, "shots": 0, "asked": None}
CONDITIONS |= {"contents": None, "definition": "cd", "documents": 2}
CURVES = {"batch 1, <cpu>": TimeCurve(((0.0, -0.1), (0.3, 0.2)), 1.5), "batch 8, <cpu>": TimeCurve(((0.0, 0.0),))}


def sweep(task, metric, training, texts=((), ()), **changes):
    unknown = np.array([np.nan, np.nan])
    scores = {f"{metric},a": np.array([0.0, 1.0]), f"{metric},b": np.array([1.0, np.nan])}
    documents = [
        Documents((0, 5), scores, unknown, unknown),
        Documents((5, 7), scores, np.array([-1 / 3, 2.0]), unknown),
    ]
    known = {f"{metric},a": 0.5, f"{metric},b": 1.0}
    points = [
        MeasuredPoint(asked, 1 / 3, 0.1, one, known, {"net": asked / 3}, {"all": 2e9}, texts=written)
        for asked, one, written in zip((0.0, 0.3), documents, texts, strict=True)
    ]
    about = {"method": training.method, "target": None, "split": "test", "variant": "", "levels": (0.0, 0.1)}
    about |= {"made_with": "torch 2", "eligible": None, "documents_sha256": None, "curves": {}}
    about |= {"conditions": CONDITIONS, "points": points} | changes
    return MeasuredSweep(task=task, seed=1, training=training, **about)


def test_measurements_are_read_back(tmp_path):
    texts = [[Text(0, "4", "It is 4.", 1.0), Text(5, "", "", None)], ()]
    sweeps = [
        sweep("t", "acc", BASE),
        sweep("u", "f1", SPARE, curves=CURVES, target=0.2, texts=texts),
        sweep("u", "f1", SPARE, curves=CURVES, target=0.2, variant="shuffled"),
        sweep("u", "f1", SPARE, curves=CURVES, target=0.2, split="validation", eligible="layers 1-3"),
    ]
    write(tmp_path, Measurements(sweeps, [BASE, SPARE]))
    found = read(tmp_path)
    shown = [[point.texts for point in one.points] for one in found.sweeps]
    assert shown == [[(), ()], texts, [(), ()], [(), ()]]
    assert [one.key for one in found.trainings] == ["aa", "bb"]
    assert found.trainings[1].base == found.trainings[0] == BASE.__class__(**vars(BASE) | {"losses": []})
    assert found.trainings[1].target == TARGET and found.trainings[1].losses == [3.5, float("inf")]
    for one, known in zip(found.sweeps, sweeps, strict=True):
        own = {name: value for name, value in vars(known).items() if name not in ("training", "points")}
        assert {name: getattr(one, name) for name in own} == own
        assert one.training.key == known.training.key
        for point, given in zip(one.points, known.points, strict=True):
            mine, other = point.documents, given.documents
            assert vars(point) | {"documents": other} == vars(given) | {"attention_executed": [], "mlp_executed": []}
            assert mine.numbers == other.numbers
            np.testing.assert_array_equal(mine.log_likelihood, other.log_likelihood)
            for metric, scores in other.scores.items():
                np.testing.assert_array_equal(mine.scores[metric], scores)


def test_a_file_that_is_missing_is_named(tmp_path):
    write(tmp_path, Measurements([sweep("t", "acc", BASE)], [BASE]))
    (tmp_path / "texts.parquet").unlink()
    with pytest.raises(EnvironmentProblem, match=r"texts\.parquet is a Parquet file with the columns"):
        read(tmp_path)


# Bytes a written token reads, from the counts behind its MACs: by hand, and held to what a batch of one reads.
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
    stored = {"attention": [1000] * LAYERS, "kv": [400] * LAYERS, "mlp": [2000] * LAYERS}
    quantized = token_bytes(counts, stored)  # stored sizes take the place of fp32
    assert quantized.read == pytest.approx(LAYERS * 3000 + 4 * (HEAD + LAYERS * KEYS * 6))
    assert quantized.dense == found.dense


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


def test_what_does_not_follow_is_not_known(shared_model, random_text):
    counts = written(shared_model("dense"), random_text(1, 7))["counts"]
    read_at_once = {phase: dict(part) for phase, part in counts.items()}
    read_at_once["decode"]["tokens"] = 0
    older = {phase: {key: value for key, value in part.items() if key != "work"} for phase, part in counts.items()}
    uneven = {phase: dict(part) for phase, part in counts.items()}
    uneven["decode"]["macs"] = [[2 * value for value in counts["decode"]["macs"][0]], *counts["decode"]["macs"][1:]]
    for known in ({}, read_at_once, older, uneven):
        assert token_bytes(known) is None
