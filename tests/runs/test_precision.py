"""`train.precision: auto` is measured once for a folder; every key and record says what came out."""

import json

import pytest

from adaptive_bench.config_file import load_config
from adaptive_bench.runs import about, plan, precision, preflight, run
from adaptive_bench.tuning import tune

AUTO = {"train": {"precision": "auto"}}


@pytest.fixture(autouse=True)
def takes(monkeypatch):
    """Seconds of a pass by whether it is in bf16, to be changed."""
    taken = {False: 3.0, True: 1.0}
    monkeypatch.setattr(precision, "_chosen", {})
    monkeypatch.setattr(precision, "seconds", lambda model, shape, *, bf16, backward: taken[bf16])
    return taken


@pytest.mark.parametrize(("bf16_s", "name"), [(1.0, "bf16"), (2.9, "fp32"), (9.0, "fp32")])
def test_keys_are_those_of_what_was_chosen(config_of, takes, bf16_s, name):
    takes[True] = bf16_s
    config = config_of("dense,gateskip", **AUTO)
    found = preflight(config)
    told = plan(config_of("dense,gateskip", train={"precision": name}))
    assert [one.folder for one in found.plan.trainings] == [one.folder for one in told.trainings]
    assert {one.content["recipe"]["precision"] for one in found.plan.trainings} == {name}
    (line,) = [line for line in about(config, found) if line.startswith("recipe")]
    assert f"{name} (bf16 measured {3 / bf16_s:.1f}x as fast as fp32)" in line


def test_what_was_chosen_stays(config_of, takes, monkeypatch):
    """Another machine that goes on trains as the first one did."""
    config = config_of("gateskip", **AUTO)
    first = plan(config)
    takes[True] = 9.0
    monkeypatch.setattr(precision, "_chosen", {})
    assert [one.folder for one in plan(config).trainings] == [one.folder for one in first.trainings]


def test_nothing_is_measured_where_nothing_is_trained_or_a_precision_is_named(config_of):
    plan(config_of("dense", train={"precision": "auto", "steps": 0}))
    plan(config_of("dense", train={"precision": "bf16"}))
    assert not (config_of().out / "precision").exists()


def test_a_training_computes_in_what_its_record_says(config_of):
    """The weights that come out are those of bf16, whoever trains: a run, or trials whose config says `auto`."""
    outcome = run(config_of("gateskip", **AUTO))
    assert outcome.exit_code == 0
    (training,) = (
        plan(config_of("gateskip", train={"precision": "bf16"})).untrained
        or plan(config_of("gateskip", train={"precision": "bf16"})).trainings
    )
    assert training.finished
    assert load_config(outcome.folder / "config.yaml").train.precision == "bf16"
    losses = [json.loads(line)["loss"] for line in (training.folder / "train.jsonl").read_text().splitlines()]
    config = config_of("gateskip", **AUTO)
    apart = config.model_copy(update={"out": config.out / "trials"})
    tune(apart, None, 1, ["sparsity_weight=log:1e-3:1"])
    (record,) = (apart.out / "records").iterdir()
    lines = (record / "train.jsonl").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines] == losses
    exact = run(config_of("gateskip", out=config.out / "fp32"))
    (record,) = (config.out / "fp32" / "records").iterdir()
    assert exact.exit_code == 0
    assert [json.loads(line)["loss"] for line in (record / "train.jsonl").read_text().splitlines()] != losses
