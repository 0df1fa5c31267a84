"""What an entry holds is read back as it was written, whatever of it is not known."""

import numpy as np
import pytest

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store.entry import Measurements, Text, read, write
from adaptive_bench.store.measured import Documents, MeasuredPoint, MeasuredSweep, MeasuredTraining
from adaptive_bench.store.timings import TimeCurve

TARGET = {"axis": "net", "saving": 0.2, "tokens": 0.21, "whole_layers": None, "priced": {"net": 0.19, "core": 1 / 3}}
BASE = MeasuredTraining("aa", "dense", 1, cost={"tokens": 3, "flops": 1e15 / 3, "parameters_added": 0}, steps=[1, 2])
SPARE = MeasuredTraining("bb", "mod[kv=evict]", 1, BASE, None, TARGET, {"seconds": 0.1}, [1, 2], [3.5, float("inf")])
CONDITIONS = {"model": "nano", "backbone": "ab", "recipe": "steps 3", "task_version": None, "shots": 0, "asked": None}
CONDITIONS |= {"contents": None, "definition": "cd", "documents": 2}
CURVES = {"batch 1, <cpu>": TimeCurve(((0.0, -0.1), (0.3, 0.2)), 1.5), "batch 8, <cpu>": TimeCurve(((0.0, 0.0),))}


def sweep(task, metric, training, **changes):
    points = [
        MeasuredPoint(asked, 1 / 3, 0.1, 2, {f"{metric},a": 0.5, f"{metric},b": 1.0}, {"net": asked / 3}, {"all": 2e9})
        for asked in (0.0, 0.3)
    ]
    unknown = np.array([np.nan, np.nan])
    scores = {f"{metric},a": np.array([0.0, 1.0]), f"{metric},b": np.array([1.0, np.nan])}
    documents = [
        Documents((0, 5), scores, unknown, unknown),
        Documents((5, 7), scores, np.array([-1 / 3, 2.0]), unknown),
    ]
    about = {"method": training.method, "target": None, "split": "test", "variant": "", "levels": (0.0, 0.1)}
    about |= {"made_with": "torch 2", "eligible": None, "documents_sha256": None, "curves": {}}
    about |= {"conditions": CONDITIONS, "points": points, "documents": documents} | changes
    return MeasuredSweep(task=task, seed=1, training=training, **about)


def test_measurements_are_read_back(tmp_path):
    sweeps = [
        sweep("t", "acc", BASE),
        sweep("u", "f1", SPARE, curves=CURVES, target=0.2),
        sweep("u", "f1", SPARE, curves=CURVES, target=0.2, variant="shuffled"),
        sweep("u", "f1", SPARE, curves=CURVES, target=0.2, split="validation", eligible="layers 1-3"),
    ]
    texts = {(1, 0): [Text(0, "4", "It is 4.", 1.0), Text(5, "", "", None)]}
    write(tmp_path, Measurements(sweeps, [BASE, SPARE], texts))
    found = read(tmp_path)
    assert found.texts == texts and [one.key for one in found.trainings] == ["aa", "bb"]
    assert found.trainings[1].base == found.trainings[0] == BASE.__class__(**vars(BASE) | {"losses": []})
    assert found.trainings[1].target == TARGET and found.trainings[1].losses == [3.5, float("inf")]
    for one, known in zip(found.sweeps, sweeps, strict=True):
        own = {name: value for name, value in vars(known).items() if name not in ("documents", "training", "points")}
        assert {name: getattr(one, name) for name in own} == own
        assert one.training.key == known.training.key
        assert [vars(point) for point in one.points] == [
            vars(point) | {"attention": [], "mlp": []} for point in known.points
        ]
        for mine, other in zip(one.documents, known.documents, strict=True):
            assert mine.numbers == other.numbers
            np.testing.assert_array_equal(mine.log_likelihood, other.log_likelihood)
            for metric, scores in other.scores.items():
                np.testing.assert_array_equal(mine.scores[metric], scores)


def test_a_file_that_is_missing_is_named(tmp_path):
    write(tmp_path, Measurements([sweep("t", "acc", BASE)], [BASE]))
    (tmp_path / "texts.parquet").unlink()
    with pytest.raises(EnvironmentProblem, match=r"texts\.parquet is a Parquet file with the columns"):
        read(tmp_path)
