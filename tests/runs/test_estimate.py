"""How long a plan will take: means of records, else what was timed, else a guess. No forecast stands in a run's way."""

import json
import platform
import time
from statistics import fmean

import pytest
import torch

from adaptive_bench.runs import plan, run
from adaptive_bench.runs.checks import preflight
from adaptive_bench.runs.cost.estimate import Estimator, Trait, describe
from adaptive_bench.runs.cost.measured_speed import MeasuredSpeed
from adaptive_bench.runs.cost.remembered_speed import RememberedSpeed
from adaptive_bench.runs.planning.backbones import BackboneSource
from adaptive_bench.spec import MethodSpec


def work_of(config):
    whole = plan(config)
    return whole.trainings[0], whole.sweeps[0]


def test_without_anything_it_is_a_guess_and_says_so(config_of):
    training, sweep = work_of(config_of("dense"))
    estimator = Estimator(training.folder.parent)
    assert estimator.training(training).rough and estimator.sweep(sweep).rough
    assert all("(rough)" in line["time"] for line in describe(plan(config_of("dense"))))


def test_what_was_timed_wins_over_a_guess_and_stands_for_plugins_too(config_of):
    config = config_of("dense,gateskip")
    training, other = plan(config).trainings
    sweep = plan(config).sweeps[0]
    estimator = Estimator(config.out, MeasuredSpeed({MethodSpec("dense"): 2.0}, {"nano_qa_ll": 5.0}))
    assert estimator.training(training).seconds == estimator.training(other).seconds == 3 * 2 * 2.0
    assert estimator.point(sweep).seconds == 3 * 5.0 and not estimator.point(sweep).rough


def test_a_dial_value_that_is_calibrated_takes_longer(config_of):
    config = config_of("dense")
    sweep, measured = plan(config).sweeps[0], MeasuredSpeed({MethodSpec("dense"): 2.0}, {"nano_qa_ll": 5.0})
    plain = Estimator(config.out, measured)
    calibrated = Estimator(config.out, measured, {"dense": Trait(calibrates=True)})
    assert calibrated.sweep(sweep).seconds > plain.sweep(sweep).seconds and plain.calibration(sweep).seconds == 0.0
    assert calibrated.point(sweep) == plain.point(sweep)


def test_means_of_records_win(config_of):
    config = config_of("random_skip[trained=true],dense")
    run(config, jobs=1)
    trained, measured = [], []
    for record in (config.out / "records").iterdir():
        timing = json.loads((record / "timing.json").read_text())
        trained.append(timing["train_s"] / timing["steps"] / 2)
        measured += [json.loads(file.read_text())["wall_s"] / 3 for file in record.glob("eval/*/0*.json")]
    other = plan(config_of("gateskip"))
    estimator = Estimator(config.out)
    assert estimator.training(other.trainings[0]).seconds == pytest.approx(3 * 2 * fmean(trained))
    assert estimator.point(other.sweeps[0]).seconds == pytest.approx(3 * fmean(measured))


@pytest.mark.parametrize("error", [RuntimeError("no time"), MemoryError("no room"), ZeroDivisionError()])
def test_a_forecast_that_fails_prevents_no_run(config_of, lines, monkeypatch, error):
    """Neither timing nor what lies among the records can."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(preflight, "measure_speed", fail)
    config = config_of("dense")
    for name, text in (("a", "["), ("b", "[]"), ("c", '{"machine": 3}'), ("d", '"x"')):
        (config.out / "records" / name).mkdir(parents=True)
        for file in ("env.json", "config.json", "timing.json"):
            (config.out / "records" / name / file).write_text(text)
    empty = {"backbone": "b", "method": "dense", "recipe": {"batch_size": 0}, "machine": platform.node()}
    for file, values in (("env.json", empty), ("config.json", empty), ("timing.json", {"steps": 1, "train_s": 1})):
        (config.out / "records" / "a" / file).write_text(json.dumps(values))
    assert run(config, lines, jobs=1).exit_code == 0
    assert [line for line in lines.lines if "is not known: timing a few steps failed" in line]


def test_speeds_that_are_known_are_not_timed_again(config_of, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = config_of("dense,gateskip")
    loaded = []
    load = BackboneSource.load_model
    monkeypatch.setattr(BackboneSource, "load_model", lambda self: loaded.append(self.name) or load(self))
    first = preflight.preflight(config).estimator._measured
    assert len(first.sequence_s) == 2 and len(first.document_s) == 1 and len(loaded) == 1
    assert preflight.preflight(config).estimator._measured == first and len(loaded) == 1
    longer = config.model_copy(update={"train": config.train.model_copy(update={"max_length": 32})})
    found = preflight.preflight(longer).estimator._measured
    assert found.document_s == first.document_s and found.sequence_s != first.sequence_s
    assert len(loaded) == 2


def test_a_speed_holds_for_its_conditions_and_for_a_week(shared_backbone, tmp_path, monkeypatch):
    file, work, cpu = tmp_path / "speeds.json", {"trained": "dense"}, torch.device("cpu")
    shape = shared_backbone("llama").config
    RememberedSpeed(shape, cpu, file).put(work, 0.25)
    assert RememberedSpeed(shape, cpu, file).get(work) == 0.25
    assert RememberedSpeed(shape, cpu, file).get({"trained": "mod"}) is None
    assert RememberedSpeed(shared_backbone("qwen3").config, cpu, file).get(work) is None
    with monkeypatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: 96)
        assert RememberedSpeed(shape, cpu, file).get(work) is None
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "1.0")
        assert RememberedSpeed(shape, cpu, file).get(work) is None
    later_s = time.time() + 8 * 24 * 3600
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: later_s)
        assert RememberedSpeed(shape, cpu, file).get(work) is None
    for damaged in ("", "[]", '{"schema": 1}', '{"schema": 1, "speeds": {"x": 3}}'):
        file.write_text(damaged)
        assert RememberedSpeed(shape, cpu, file).get(work) is None
    RememberedSpeed(shape, cpu, file).put(work, 0.5)
    assert RememberedSpeed(shape, cpu, file).get(work) == 0.5
