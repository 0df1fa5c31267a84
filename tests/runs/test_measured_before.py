"""What is measured before a run and for it: its precision, the sites that a model cannot do without, and its dials."""

import json

import pytest
import torch
from model_folder import write_model_folder
from transformers import AutoModelForCausalLM

from adaptive_bench.backbone import Site
from adaptive_bench.config import load_config
from adaptive_bench.errors import UsageError
from adaptive_bench.headroom.named_models import find_subjects
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.runs import about, measured_settings, plan, preflight, run
from adaptive_bench.runs.evaluation_work import Calibrated
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.manifest import sparing
from adaptive_bench.training.encoding import generated_text
from adaptive_bench.tuning import tune

AUTO = {"train": {"precision": "auto"}}


@pytest.fixture(autouse=True)
def takes(monkeypatch):
    """Seconds of a pass by whether it is in bf16, to be changed."""
    taken = {False: 3.0, True: 1.0}
    monkeypatch.setattr(measured_settings, "_known", {})
    monkeypatch.setattr(measured_settings, "_emulates_bf16", lambda device: False)
    monkeypatch.setattr(measured_settings, "seconds", lambda model, shape, least_s, *, bf16, backward: taken[bf16])
    return taken


@pytest.mark.parametrize(("bf16_s", "name"), [(1.0, "bf16"), (2.9, "fp32"), (9.0, "fp32")])
def test_keys_are_those_of_what_was_chosen_which_stays(config_of, takes, bf16_s, name, monkeypatch):
    takes[True] = bf16_s
    config = config_of("dense,gateskip", **AUTO)
    found = preflight(config)
    told = plan(config_of("dense,gateskip", train={"precision": name}))
    assert [one.folder for one in found.plan.trainings] == [one.folder for one in told.trainings]
    assert {one.content["recipe"]["precision"] for one in found.plan.trainings} == {name}
    (line,) = [line for line in about(config, found) if line.startswith("recipe")]
    assert f"{name} (bf16 measured {3 / bf16_s:.1f}x as fast as fp32)" in line
    takes[True] = 10 - bf16_s  # another machine that goes on trains as the first one did
    monkeypatch.setattr(measured_settings, "_known", {})
    assert [one.folder for one in plan(config).trainings] == [one.folder for one in told.trainings]


def test_nothing_is_measured_where_nothing_depends_on_it(config_of, takes, monkeypatch):
    takes.clear()  # a pass would be a KeyError
    plan(config_of("dense", train={"precision": "auto", "steps": 0}))
    plan(config_of("dense", train={"precision": "bf16"}))
    assert not (config_of().out / "precision").exists()
    monkeypatch.setattr(measured_settings, "_emulates_bf16", lambda device: True)
    config = config_of("dense", **AUTO)
    assert "fp32 (bf16 would be emulated here)" in "\n".join(about(config, preflight(config)))


def test_a_training_computes_in_what_its_record_says(config_of):
    """The weights that come out are those of bf16, whoever trains: a run, or trials whose config says `auto`."""

    def losses(folder):
        return [json.loads(line)["loss"] for line in (folder / "train.jsonl").read_text().splitlines()]

    outcome = run(config_of("gateskip", **AUTO))
    assert outcome.exit_code == 0
    (training,) = plan(config_of("gateskip", train={"precision": "bf16"})).trainings
    assert training.finished
    assert load_config(outcome.folder / "config.yaml").train.precision == "bf16"
    config = config_of("gateskip", **AUTO)
    apart = config.model_copy(update={"out": config.out / "trials"})
    tune(apart, None, 1, ["sparsity_weight=log:1e-3:1"])
    (record,) = (apart.out / "records").iterdir()
    assert losses(record) == losses(training.folder)
    exact = run(config_of("gateskip", out=config.out / "fp32"))
    (record,) = (config.out / "fp32" / "records").iterdir()
    assert exact.exit_code == 0 and losses(record) != losses(training.folder)


# Sites that a model cannot do without: who may spare them does.
SPARED = frozenset({Site(0, "mlp")})
ENTRY = {"spared": [[0, "mlp"]], "keep_first": False}


@pytest.fixture(scope="module")
def lopsided(tmp_path_factory):
    """A folder with a model whose MLP of layer 0 does nearly all."""
    folder = write_model_folder(tmp_path_factory.mktemp("lopsided"))
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for layer, block in enumerate(model.model.layers):
            block.mlp.down_proj.weight.mul_(1.0 if layer else 500.0)
    model.save_pretrained(folder)
    return str(folder)


def subject_of(folder, spec):
    (model,) = find_subjects(str(folder), [MethodSpec.parse(spec)], out=folder, device="cpu").models
    return model


def contents(whole):
    pieces = (whole.trainings, whole.sweeps)
    return tuple({str(one.spec): one.content.get("eligible") for one in some} for some in pieces)


def test_what_was_measured_is_part_of_the_keys_it_applies_to(config_of, lopsided, lines):
    config = config_of("dense,random_skip,gateskip,static_depth,skiplayer@paper", model=lopsided, preset=None)
    whole = plan(config, lines)
    assert whole.sites.spared == SPARED
    assert [line for line in lines.lines if line.startswith("eligible: 3 of 4 sites; spared: MLP of layer 0 (")]
    trained, asked = contents(whole)
    assert trained == {"dense": None, "gateskip": ENTRY, "skiplayer": None}
    assert asked == dict.fromkeys(config.methods) | {"random_skip": ENTRY, "gateskip": ENTRY}
    (file,) = (config.out / "sites").iterdir()
    measured_settings._known.clear()
    file.write_text(file.read_text().replace('"first_token": ', '"first_token": 99'))
    assert plan(config).sites.keep_first  # read, not measured again
    measured_settings._known.clear()
    file.write_text("{")
    assert plan(config).sites == whole.sites  # measured again


def test_a_plan_that_is_only_looked_at_measures_nothing(config_of, lopsided, lines):
    """It says so, and there is as much to do."""
    config = config_of("gateskip", model=lopsided, preset=None)
    found = preflight(config, lines, measures=False)
    assert found.plan.sites_left and found.plan.sites is None and not (config.out / "sites").exists()
    assert any(line.startswith("eligible: measured when the run begins") for line in about(config, found))
    whole = plan(config)
    assert not whole.sites_left and len(whole.sweeps) == len(found.plan.sweeps)
    assert preflight(config, measures=False).plan.sites == whole.sites


def test_all_sites_where_it_is_asked_for_and_in_the_presets_of_papers(config_of, lopsided):
    default = plan(config_of("gateskip", model=lopsided, preset=None))
    for change in ({"eligible": "all"}, {"preset": "paper_lambada"}, {"preset": "nano_paper"}):
        other = plan(config_of("gateskip", **({"model": lopsided, "preset": None} | change)))
        assert other.sites is None and "eligible" not in other.trainings[0].content
        assert other.trainings[0].folder.name != default.trainings[0].folder.name
    of_papers = plan(config_of("skiplayer@paper", model=lopsided, preset=None, eligible="measured"))
    assert contents(of_papers)[1] == {"skiplayer@paper": ENTRY}


def test_a_registered_model_is_measured_where_that_is_asked_for(config_of):
    """With nothing spared no key changes: no site of nano costs ten times the median."""
    default, asked = (plan(config_of("gateskip", model="nano", **how)) for how in ({}, {"eligible": "measured"}))
    assert default.sites is None and asked.sites is not None and not asked.sites.spared
    assert [one.folder for one in default.trainings] == [one.folder for one in asked.trainings]


def test_measuring_needs_text(config_of, lopsided, monkeypatch):
    monkeypatch.setattr(measured_settings, "draw_site_text", lambda config: [])
    assert plan(config_of("gateskip", model=lopsided, preset=None)).sites is None
    with pytest.raises(UsageError, match="or let tokens skip everywhere with --eligible all"):
        plan(config_of("gateskip", model=lopsided, preset=None, eligible="measured"))


def test_a_run_spares_what_was_measured(config_of, lopsided):
    """Training, evaluation and the untrained control on dense weights; the table says where tokens may skip."""
    config = config_of("random_skip,gateskip", model=lopsided, preset=None)
    outcome = run(config)
    assert outcome.exit_code == 0
    for sweep in plan(config).sweeps:
        said = sweep.record.read("dial")
        assert said["eligible"] == "attention of layers 0, 1, MLP of layer 1"
        model = AdaptiveModel.from_pretrained(sweep.training.checkpoint, sweep.spec, **sparing(sweep.content))
        assert model.method.spared == SPARED
        assert said["max_saved_tokens"] == pytest.approx(model.method.max_saving)
    for spec in config.methods:  # weights of the control are the dense model's, which spares nothing
        assert AdaptiveModel.load(outcome.folder, spec).method.spared == SPARED
        assert subject_of(outcome.folder, spec).method.spared == SPARED
    assert run(config).exit_code == 0  # nothing is left


def test_a_row_says_that_the_first_token_skips_nothing(config_of, lopsided):
    config = config_of("random_skip", model=lopsided, preset=None, train={"steps": 0})
    plan(config)
    (file,) = (config.out / "sites").iterdir()
    measured_settings._known.clear()
    file.write_text(file.read_text().replace('"first_token": ', '"first_token": 99'))
    said = "attention of layers 0, 1, MLP of layer 1, but no first token"
    assert {row["eligible"] for row in run(config).rows} == {said}


# A training as it is evaluated: calibrated for each task on text of its own, of the size and kind the recipe says.


def test_each_task_has_text_of_its_own_unless_it_is_pooled(config_of):
    def calibrations(**how):
        config = config_of("gateskip", tasks=("nano_math", "nano_qa_ll"), evaluation=how)
        assert run(config).exit_code == 0
        return {sweep.task: sweep.record.read("calibration") for sweep in plan(config).sweeps}

    found, pooled = calibrations(), calibrations(calibration="pooled")
    assert {about["examples"] for about in found.values()} == {4}
    assert found["nano_math"]["tokens"] != found["nano_qa_ll"]["tokens"]
    assert all(about["per"] == "task" and about["text"] == "gold" for about in found.values())
    assert pooled["nano_math"] == pooled["nano_qa_ll"]


def test_no_more_is_asked_for_than_the_end_of_the_dial_skips(config_of):
    """Prompts never exit, so that the last values of calm's dial would all be one."""
    config = config_of("calm", levels=[0.3])
    assert run(config).exit_code == 0
    (sweep,) = plan(config).sweeps
    model, end = Calibrated(sweep).model, sweep.record.max_saved_tokens
    assert 0 < end < model.method.max_saving and max(sweep.finished()) <= end
    (last,) = [one for one in sweep.record.read("calibration")["dials"] if one["saving"] == max(sweep.finished())]
    assert last["realised"] == pytest.approx(last["requested"], abs=0.05)


def test_text_may_be_what_the_model_writes(config_of):
    """Answers follow the prompts and end; the trainings are those of gold text."""
    config = config_of("gateskip", evaluation={"calibration_text": "written"})
    assert run(config).exit_code == 0
    (sweep,) = plan(config).sweeps
    about, gold, calibrated = sweep.record.read("calibration"), plan(config_of("gateskip")), Calibrated(sweep)
    assert about["text"] == "written" and about["examples"] == 4
    assert gold.sweeps[0].folder != sweep.folder and gold.trainings[0].folder == sweep.training.folder
    text = calibrated._text
    again = generated_text(calibrated.model, text, calibrated.tokenizer, batch_size=2)
    prompts = {example.token_ids[: example.prompt_length] for example in text}
    for example in again:
        assert example.token_ids[: example.prompt_length] in prompts
        assert example.token_ids[-1] == calibrated.tokenizer.eos_token_id
    assert calibrated.model.dial == calibrated.model.method.dial.skip_nothing
