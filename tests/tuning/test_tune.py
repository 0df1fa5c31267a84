"""A whole study with real trainings of two steps: its trials are trainings that a run finds done."""

import json

import pytest

from adaptive_bench.config_file import load_config
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.runs import plan, run
from adaptive_bench.runs.planning import plan as plan_module
from adaptive_bench.store import atomic
from adaptive_bench.store.records import Record
from adaptive_bench.tuning import Objective, find_result, tune, tuned
from adaptive_bench.tuning import trial as trial_module

PARAMS = ["sparsity_weight=log:1e-3:1"]


@pytest.fixture
def config(tmp_path):
    values = {"methods": "gateskip", "tasks": "nano_qa_ll", "out": tmp_path / "out", "match_on": "tokens"}
    return load_config("smoke", {**values, "device": "cpu"})


def test_a_run_with_the_best_finds_its_training_done(config):
    result = tune(config, Objective.parse("score@0.1"), 2, PARAMS, name="mine", jobs=1)
    assert [trial.state for trial in result.trials] == ["complete", "complete"]
    assert result.trials[0].spec == "gateskip" and result.trials[1].spec == "gateskip[sparsity_weight=0.03162]"
    folder = config.out / "studies" / "mine"
    assert find_result("mine", config.out) == result
    assert "sparsity_weight=0.03162" in (folder / "study.html").read_text()

    best = tuned(config, result)
    assert best.methods == (result.best["gateskip"].spec,)
    assert all(training.finished for training in plan(best).trainings)
    assert run(best, jobs=1).exit_code == 0


def test_trials_of_early_exits_are_evaluations_of_one_training_and_say_what_they_took(config):
    early = config.model_copy(update={"methods": ("calm",)})
    result = tune(early, Objective.parse("area"), 3, ["min_exit=int:1:2", "confidence=choice:softmax|state"], name="it")
    assert [trial.state for trial in result.trials if trial.state != "refused"] == ["complete"] * 3
    trained = {path.parent.name for path in (config.out / "records").glob("*/checkpoint")}
    assert len(trained) == 1 and len({trial.spec for trial in result.trials}) == len(result.trials)
    timing = Record(next((config.out / "records").iterdir())).read("timing")
    for trial in result.trials:
        if trial.state == "complete":
            assert trial.seconds["training"] == timing["train_s"] and trial.seconds["evaluation"] > 0
    assert find_result("it", config.out) == result
    page = (config.out / "studies" / "it" / "study.html").read_text()
    assert "s (train + eval)" in page and result.trials[0].seconds_text in page


def test_defaults_and_repetitions_are_no_trials_and_a_space_that_has_no_more_says_so(config, monkeypatch):
    monkeypatch.setattr(trial_module.Trials, "run_trial", fixed_trial)
    result = tune(config, Objective.parse("area"), 5, ["stride=int:1:2", "shape=choice:vector|scalar"], name="mine")
    complete = [trial for trial in result.trials if trial.state == "complete"]
    assert len(complete) == 4 and len({trial.spec for trial in complete}) == 4
    assert {trial.state for trial in result.trials} <= {"complete", "refused"}
    assert result.exhausted == ("gateskip",) and find_result("mine", config.out) == result
    assert "gateskip has fewer trials" in (config.out / "studies" / "mine" / "study.html").read_text()


def test_what_is_done_is_not_done_again_and_another_recipe_is_refused(config, monkeypatch):
    first = tune(config, Objective.parse("area"), 1, PARAMS, name="mine", jobs=1)
    monkeypatch.setattr(trial_module, "carry_out", None)
    assert tune(config, Objective.parse("area"), 1, PARAMS, name="mine") == first
    with pytest.raises(UsageError, match="objective"):
        tune(config, Objective.parse("score@0.1"), 1, PARAMS, name="mine")
    with pytest.raises(UsageError, match="recipe"):
        tune(load_config("smoke", {**config.model_dump(), "seeds": 2}), Objective.parse("area"), 1, PARAMS, name="mine")


def test_a_trial_that_fails_says_why(config, monkeypatch):
    from adaptive_bench.jobs.failure import Failure

    monkeypatch.setattr(trial_module, "carry_out", lambda *_: [Failure("train gateskip", "it burns")])
    result = tune(config, Objective.parse("area"), 2, PARAMS, name="mine")
    assert [trial.state for trial in result.trials] == ["fail", "fail"]
    assert all("train gateskip" in trial.reason and "it burns" in trial.reason for trial in result.trials)
    assert json.loads((config.out / "studies" / "mine" / "result.json").read_text())["best"] == {}
    with pytest.raises(UsageError, match="no method"):
        tuned(config, result)


def test_a_study_without_a_chat_template_does_not_go_on_with_one(config, monkeypatch):
    from adaptive_bench.jobs.failure import Failure

    monkeypatch.setattr(trial_module, "carry_out", lambda *_: [Failure("train gateskip", "it burns")])
    tune(config, Objective.parse("area"), 1, PARAMS, name="mine")
    with pytest.raises(UsageError, match="recipe"):
        tune(config.model_copy(update={"chat_template": True}), Objective.parse("area"), 1, PARAMS, name="mine")


def test_a_best_trial_that_other_seeds_do_not_confirm_does_not_stand(config, monkeypatch):
    asked = []

    def run_trial(self, values):
        asked.append((self.config.seeds, dict(values)))
        lucky = bool(values) and self.config.seeds == (1,)
        yield trial_module.Intermediate(0.9 if lucky else 0.2 if values else 0.5, True, {})

    monkeypatch.setattr(trial_module.Trials, "run_trial", run_trial)
    result = tune(config, Objective.parse("area"), 2, PARAMS, confirm=2, name="mine", jobs=1)
    tried = {"sparsity_weight": "0.03162"}
    assert asked == [((1,), {}), ((1,), tried), ((1001, 1002), {}), ((1001, 1002), tried)]
    assert [trial.value for trial in result.trials] == [0.5, 0.9]
    assert [trial.value for trial in result.confirmed] == [0.5, 0.2]
    assert result.best["gateskip"].spec == "gateskip" and result.default("gateskip").value == 0.5
    assert tuned(config, result).methods == ("gateskip",)
    folder = config.out / "studies" / "mine"
    assert find_result("mine", config.out) == result and "Confirmed" in (folder / "study.html").read_text()

    assert tune(config, Objective.parse("area"), 2, PARAMS, confirm=2, name="mine") == result and len(asked) == 4
    with pytest.raises(UsageError, match="confirm"):
        tune(config, Objective.parse("area"), 2, PARAMS, name="mine")


def test_defaults_that_are_best_need_no_confirmation(config, monkeypatch):
    def run_trial(self, values):
        yield trial_module.Intermediate(0.2 if values else 0.5, True, {})

    monkeypatch.setattr(trial_module.Trials, "run_trial", run_trial)
    result = tune(config, Objective.parse("area"), 2, PARAMS, confirm=1, name="mine", jobs=1)
    assert not result.confirmed and result.best["gateskip"].spec == "gateskip"


def test_a_full_disk_costs_no_trial(config, monkeypatch):
    from adaptive_bench.errors import EnvironmentProblem
    from adaptive_bench.jobs.failure import Failure

    full = [Failure("train gateskip", "No space left on device.", EnvironmentProblem.kind)]
    with monkeypatch.context() as patched:
        patched.setattr(trial_module, "carry_out", lambda *_: full)
        with pytest.raises(EnvironmentProblem, match="No space left"):
            tune(config, Objective.parse("area"), 1, PARAMS, name="mine")
    result = tune(config, Objective.parse("area"), 1, PARAMS, name="mine", jobs=1)
    assert [trial.state for trial in result.trials if not trial.interrupted] == ["complete"]


def fixed_trial(self, values):
    yield trial_module.Intermediate(0.5, True, {})


def other_code(original):
    return lambda method, work: original(method, work) | {"source": "edited"}


def other_documents(original):
    return lambda task, data_dir: original(task, data_dir) | {"task_code": "edited"}


@pytest.mark.parametrize(
    ("asked", "edited", "named"),
    [("code_behind", other_code, "code of gateskip"), ("task_inputs", other_documents, "documents of nano_qa_ll")],
)
def test_a_finished_study_does_not_outlive_what_its_trials_were_made_from(config, monkeypatch, asked, edited, named):
    monkeypatch.setattr(trial_module.Trials, "run_trial", fixed_trial)
    first = tune(config, Objective.parse("area"), 1, PARAMS, jobs=1)
    tune(config, Objective.parse("area"), 1, PARAMS, name="mine", jobs=1)
    monkeypatch.setattr(plan_module, asked, edited(getattr(plan_module, asked)))
    with pytest.raises(UsageError, match=f"would change: {named}. .*--study"):
        tune(config, Objective.parse("area"), 1, PARAMS, name="mine", jobs=1)
    assert tune(config, Objective.parse("area"), 1, PARAMS, jobs=1).name != first.name  # begun anew beside it


def test_trials_of_one_study_are_made_from_the_same_things(config, monkeypatch):
    from adaptive_bench.jobs.failure import Failure

    original = plan_module.task_inputs

    def carry_out(*_):
        monkeypatch.setattr(plan_module, "task_inputs", other_documents(original))
        return [Failure("train gateskip", "it burns")]

    monkeypatch.setattr(trial_module, "carry_out", carry_out)
    with pytest.raises(EnvironmentProblem, match="there changed: documents of nano_qa_ll"):
        tune(config, Objective.parse("area"), 2, PARAMS, name="mine", jobs=1)
    states = [trial.state for trial in find_result("mine", config.out).trials if not trial.interrupted]
    assert "complete" not in states and states.count("fail") == 1


def test_files_of_a_study_that_are_damaged_are_refused(config, monkeypatch):
    monkeypatch.setattr(trial_module.Trials, "run_trial", fixed_trial)
    tune(config, Objective.parse("area"), 1, PARAMS, name="mine", jobs=1)
    folder = config.out / "studies" / "mine"
    atomic.write_text(folder / "result.json", (folder / "result.json").read_text()[:-9])
    with pytest.raises(EnvironmentProblem, match=r"result\.json.*cannot be read"):
        find_result("mine", config.out)
    tune(config, Objective.parse("area"), 1, PARAMS, name="mine", jobs=1)
    assert find_result("mine", config.out).best["gateskip"].value == 0.5  # from the storage

    (folder / "study.json").write_text((folder / "study.json").read_text()[:-9])
    with pytest.raises(EnvironmentProblem, match=r"study\.json.*must be what was written"):
        tune(config, Objective.parse("area"), 1, PARAMS, name="mine", jobs=1)
    (folder / "study.json").unlink()  # the storage knows what its trials are of
    with pytest.raises(UsageError, match="made with another one"):
        tune(config, Objective.parse("score@0.1"), 1, PARAMS, name="mine", jobs=1)
