"""How long a plan will take: means of records, else FLOPs at a measured rate, else a guess. No forecast stands in a
run's way.
"""

import json
import platform
from statistics import fmean

import pytest
import torch

from adaptive_bench.runs import plan, run
from adaptive_bench.runs import run_checks as preflight
from adaptive_bench.runs.backbone_source import BackboneSource
from adaptive_bench.runs.estimate import Estimator, Speed, Trait, describe, measure_rates
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.records import Record


def work_of(config):
    whole = plan(config)
    return whole.trainings[0], whole.sweeps[0]


def test_without_anything_it_is_a_guess_and_says_so(config_of):
    training, sweep = work_of(config_of("dense"))
    estimator = Estimator(training.folder.parent)
    assert estimator.training(training).rough and estimator.sweep(sweep).rough
    assert all("(rough)" in line["time"] for line in describe(plan(config_of("dense"))))


def test_a_forecast_wins_over_a_guess_and_stands_for_plugins_too(config_of):
    config = config_of("dense,gateskip")
    training, other = plan(config).trainings
    sweep = plan(config).sweeps[0]
    estimator = Estimator(config.out, Speed({MethodSpec("dense"): 2.0}, {"nano_qa_ll": 5.0}))
    assert estimator.training(training).seconds == estimator.training(other).seconds == 3 * 2 * 2.0
    assert estimator.point(sweep).seconds == 3 * 5.0 and not estimator.point(sweep).rough


def test_a_dial_value_that_is_calibrated_takes_longer(config_of):
    config = config_of("dense")
    sweep, measured = plan(config).sweeps[0], Speed({MethodSpec("dense"): 2.0}, {"nano_qa_ll": 5.0})
    plain = Estimator(config.out, measured)
    calibrated = Estimator(config.out, measured, {"dense": Trait(calibrates=True)})
    assert calibrated.sweep(sweep).seconds > plain.sweep(sweep).seconds and plain.calibration(sweep).seconds == 0.0
    assert calibrated.point(sweep) == plain.point(sweep)


def test_means_of_records_win(config_of):
    config = config_of("random_skip[trained=true],dense")
    run(config, jobs=1)
    trained, measured = [], []
    for record in (config.out / "records").iterdir():
        timing = Record(record).read("timing")
        trained.append(timing["train_s"] / timing["steps"] / 2)
        points = [one for sweep in record.glob("eval/*") for one in Record(sweep).read("points").values()]
        measured += [point["wall_s"] / 3 for point in points]
    other = plan(config_of("gateskip"))
    estimator = Estimator(config.out)
    assert estimator.training(other.trainings[0]).seconds == pytest.approx(3 * 2 * fmean(trained))
    assert estimator.point(other.sweeps[0]).seconds == pytest.approx(3 * fmean(measured))


@pytest.mark.parametrize("error", [RuntimeError("no time"), MemoryError("no room"), ZeroDivisionError()])
def test_a_forecast_that_fails_prevents_no_run(config_of, lines, monkeypatch, error):
    """Neither a forecast nor what lies among the records can."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(preflight, "forecast", fail)
    config = config_of("dense")
    for name, text in (("a", "["), ("b", "[]"), ("c", '{"env": {"machine": 3}}'), ("d", '"x"')):
        (config.out / "records" / name).mkdir(parents=True)
        (config.out / "records" / name / "record.json").write_text(text)
    empty = {"backbone": "b", "method": "dense", "recipe": {"batch_size": 0}}
    sections = {"env": {"machine": platform.node()}, "config": empty, "timing": {"steps": 1, "train_s": 1}}
    (config.out / "records" / "a" / "record.json").write_text(json.dumps(sections))
    assert run(config, lines, jobs=1).exit_code == 0
    assert [line for line in lines.lines if "is not known: the forecast failed" in line]


def test_a_forecast_loads_no_weights_and_prices_each_method_alike_by_its_flops(config_of, monkeypatch):
    def refuse(self):
        raise AssertionError("weights are not needed")

    monkeypatch.setattr(BackboneSource, "load_model", refuse)
    config = config_of("dense,gateskip,calm")
    found = preflight.preflight(config)
    speed, work = found.estimator._forecast, found.work
    assert speed.documents == {"nano_qa_ll": 3} and speed.document_s["nano_qa_ll"] > 0
    dense, gateskip, calm = (MethodSpec(name) for name in ("dense", "gateskip", "calm"))
    for one in (gateskip, calm):
        flops = work.training_flops(one) / work.training_flops(dense)
        assert speed.sequence_s[one] / speed.sequence_s[dense] == pytest.approx(flops) and flops > 1
    assert not any("(rough)" in line["time"] for line in describe(found.plan, found.estimator))


def test_rates_are_those_of_short_passes(shared_backbone):
    rates = measure_rates(shared_backbone("gemma2").config, torch.device("cpu"), 4, bf16=True)
    assert all(rate > 0 for rate in rates)
