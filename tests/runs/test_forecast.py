"""How long a plan will take: means of records, else FLOPs at a measured rate, else a guess. No forecast stands in a
run's way.
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.adapters import Adapters
from adaptive_bench.recipe import LoraRecipe, TrainRecipe
from adaptive_bench.runs import describe, plan, run
from adaptive_bench.runs.backbone_source import BackboneSource
from adaptive_bench.runs.forecast import Asked, Estimator, Prices, Trait, Workload, measure_rate
from adaptive_bench.runs.model_checks import model_facts
from adaptive_bench.runs.run_checks import preflight
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.records import Record
from adaptive_bench.training.cost import FlopCount


def work_of(config):
    whole = plan(config)
    return whole.trainings[0], whole.sweeps[0]


class Told:
    """Work as a test tells it: two seconds a sequence, five a document."""

    sequence_s = staticmethod(lambda spec: 2.0)
    reading_s = 0.5
    document_s = staticmethod(lambda task: 5.0)
    asked = staticmethod(lambda task: Asked(3, 1.0, 1.0))


def test_without_anything_it_is_a_guess_and_says_so(config_of):
    training, sweep = work_of(config_of("dense"))
    estimator = Estimator(training.folder.parent)
    assert estimator.training(training) > 0 and estimator.sweep(sweep) > 0
    assert all("(rough)" in line["time"] for line in describe(plan(config_of("dense"))))


def test_a_speed_wins_over_a_guess(config_of):
    config = config_of("dense,gateskip")
    training, other = plan(config).trainings
    sweep = plan(config).sweeps[0]
    plain = Estimator(config.out, Told())
    assert plain.training(training) == plain.training(other) == 3 * 2 * 2.0
    assert plain.point(sweep) == 3 * 5.0
    calibrated = Estimator(config.out, Told(), {"dense": Trait(calibrates=True)})  # each dial value takes longer
    assert calibrated.sweep(sweep) > plain.sweep(sweep) and plain.calibration(sweep) == 0.0
    # One pass sets thresholds, another checks them: passes of evaluation, whatever a step of training takes.
    assert calibrated.calibration(sweep) == 2 * config.evaluation.calibration_examples * 0.5
    assert calibrated.point(sweep) == plain.point(sweep)


def test_means_of_records_of_the_same_method_win(config_of):
    config = config_of("random_skip[trained=true],dense")
    run(config, jobs=1)
    trained, measured = [], []
    for record in map(Record, (config.out / "records").iterdir()):
        if record.read("config")["method"] == "dense":
            continue
        timing = record.read("timing")
        trained.append(timing["train_s"] / timing["steps"] / 2)
        points = [one for sweep in record.folder.glob("eval/*") for one in Record(sweep).read("points").values()]
        measured += [point["wall_s"] / 3 for point in points]
    training, sweep = work_of(config_of("random_skip[trained=true]", seeds=(2,)))
    for estimator in (Estimator(config.out), Estimator(config.out, Told())):
        assert estimator.training(training) == pytest.approx(3 * 2 * fmean(trained))
        assert estimator.point(sweep) == pytest.approx(3 * fmean(measured))


@pytest.mark.parametrize("error", [RuntimeError("no time"), MemoryError("no room"), ZeroDivisionError()])
def test_a_forecast_that_fails_prevents_no_run(config_of, lines, monkeypatch, error):
    """Neither a forecast nor what lies among the records can."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(Workload, "sequence_s", fail)
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
    config = config_of("dense,gateskip,calm", eligible="all")  # sites are measured with weights
    found = preflight(config)
    work = found.estimator.work
    assert work.asked("nano_qa_ll").documents == 3 and work.document_s("nano_qa_ll") > 0
    dense, gateskip, calm = (MethodSpec(name) for name in ("dense", "gateskip", "calm"))
    for one in (gateskip, calm):
        flops = work.training_flops(one) / work.training_flops(dense)
        assert work.sequence_s(one) / work.sequence_s(dense) == pytest.approx(flops) and flops > 1
    assert not any("(rough)" in line["time"] for line in describe(found.plan, found.estimator))


@pytest.mark.parametrize("rows, length", [(1, 256), (4, 1)])
def test_a_rate_is_that_of_short_passes(shared_backbone, rows, length):
    shape = shared_backbone("gemma2").config
    assert measure_rate(shape, torch.device("cpu"), rows, length, bf16=True, backward=True) > 0


# What a run takes, from sizes alone: held against what is counted, and against the plan.


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
def test_a_pass_costs_what_torch_counts(family, make_backbone, random_text):
    model = make_backbone(family, "eager")  # torch does not count the fused attention of a CPU
    with FlopCounterMode(display=False) as counter:
        model(random_text(1, 16))
    # torch counts all pairs of tokens, the price those that a causal model looks at
    price = Prices(model).forward(16, 16)
    assert price < counter.get_total_flops() < 1.2 * price
    assert Prices(model).training(16, TrainRecipe()) == 3 * price
    assert Prices(model).training(16, TrainRecipe(lora=LoraRecipe(), gradient_checkpointing=True)) == 3 * price


def test_texts_of_a_first_look_may_be_as_long_as_they_are_let(config_of):
    """Hardly trained models do not come to an end; others write about as much as the right answer."""
    config = config_of("dense", tasks=("nano_math",), evaluation={"limit": 4, "max_new_tokens": 200})
    facts = model_facts(config.model)
    empty, tokenizer = facts.empty, facts.source.load_tokenizer()
    usual = Workload(config, empty, tokenizer).asked("nano_math")
    quick = Workload(config.model_copy(update={"preset": "nano --quick"}), empty, tokenizer).asked("nano_math")
    assert quick.reading == usual.reading
    assert 200 * 4 * Prices(empty).forward(1, 1) < quick.writing
    assert quick.writing > 2 * usual.writing


@pytest.mark.parametrize("lora", [None, LoraRecipe(rank=2)])
@pytest.mark.parametrize("spec", ["dense", "gateskip", "calm", "router_tuned_mod"])
def test_a_training_is_priced_by_what_its_steps_execute(spec, lora, config_of):
    """The count of a step without values is that of a real one, which records keep."""
    config = config_of(spec, train={"lora": None if lora is None else lora.model_dump()})
    facts = model_facts(config.model)
    counted = Prices(facts.empty).step(MethodSpec.parse(spec), config.train, 24, 11)
    model = AdaptiveModel.build(facts.source.load_model(), spec)
    if lora is not None and not model.method.freezes_backbone:
        Adapters(model.backbone_model, lora)
    model.begin_step(375, 1000)
    ids = torch.ones(1, 24, dtype=torch.long)
    count = FlopCount(model, model.backbone)
    later = torch.arange(24)[None] >= 13
    model(ids, labels=ids.masked_fill(~later, -100), continuation_mask=later, return_logits=False).loss.backward()
    assert counted.flops == count.flops
    assert facts.empty.lm_head.weight.requires_grad


DATA = Path(os.environ["ADAPTIVE_BENCH_SHARED"]) / "data"


@pytest.mark.real
@pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not beside the repository")
@pytest.mark.parametrize(
    "asked",
    [
        ["--config", "smollm2"],
        ["--methods", "gateskip,mod", "--tasks", "gsm8k,csqa"],
        ["--config", "smollm2", "--quick"],
    ],
)
def test_it_takes_little_memory_and_measures_no_site(smollm2, tmp_path, asked):
    """Two gigabytes, where one pass over all of the text that a forecast looks at took 24."""
    command = [sys.executable, "-m", "adaptive_bench", "run", *asked, "--model", str(smollm2), "--data-dir", str(DATA)]
    with (tmp_path / "said").open("w") as said:
        child = subprocess.Popen([*command, "--dry-run"], cwd=tmp_path, stdout=said)
        _, status, used = os.wait4(child.pid, 0)  # of this child alone
    text = (tmp_path / "said").read_text()
    assert status == 0 and "eligible: measured when the run begins" in text and "time    about" in text
    assert ("x as fast as fp32)" in text or "emulated here)" in text) and used.ru_maxrss < 2_000_000  # kB
