"""A whole study with real trainings of two steps: its trials are trainings that a run finds done."""

import json
from pathlib import Path

import pytest
from filelock import FileLock
from optuna.trial import TrialState

from adaptive_bench.cli.tune import _print
from adaptive_bench.config import load_config
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.jobs.job import Failure
from adaptive_bench.runs import plan, run
from adaptive_bench.store import atomic
from adaptive_bench.store.records import Record
from adaptive_bench.tuning import Objective, find_result, tune, tuned
from adaptive_bench.tuning import search as trial_module
from adaptive_bench.tuning.result import StudyResult, TrialResult

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
    assert (folder / "journal.log").is_file()  # what optuna-dashboard opens

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


@pytest.fixture
def measured(monkeypatch):
    """`measured(value_of)`: trials have a value by formula of theirs and the seeds; gives what is asked, in order."""

    def make(value_of):
        asked = []

        def do(self, trials):
            for trial in trials:
                asked.append((self.config.seeds, dict(trial.values)))
                value = value_of(trial.values, self.config.seeds)
                state = TrialState.FAIL if value is None else TrialState.COMPLETE
                trial.end(state, value, reason="it burns" if value is None else "")

        monkeypatch.setattr(trial_module.TrialRunner, "do", do)
        return asked

    return make


def weight_of(values, seeds=()):
    return 1 - abs(float(values.get("sparsity_weight", 1.0)) - 0.1)


def test_as_many_trials_as_asked_for_each_a_method_of_its_own_the_first_with_the_defaults(config, measured):
    asked = measured(weight_of)
    result = tune(config, None, 12, PARAMS, name="mine")
    assert len(asked) == len({trial.spec for trial in result.trials}) == 12 and not result.trials[0].values
    assert result.best["gateskip"].value == max(trial.value for trial in result.trials)
    tried = [trial.values for trial in result.trials]
    assert [one.values for one in tune(config, None, 14, PARAMS, name="mine").trials][:12] == tried  # and two more


def test_a_study_that_was_stopped_tries_what_an_undisturbed_one_tries(config, measured):
    measured(weight_of)
    undisturbed = tune(config, None, 9, PARAMS, name="mine")

    def stopped(values, seeds):
        if len(asked) > 6:
            raise KeyboardInterrupt
        return weight_of(values)

    asked = measured(stopped)
    with pytest.raises(KeyboardInterrupt):
        tune(config, None, 9, PARAMS, name="mine")
    measured(weight_of)
    assert tune(config, None, 9, PARAMS, name="mine").trials == undisturbed.trials


def test_defaults_and_repetitions_are_no_trials_and_a_space_that_has_no_more_says_so(config, measured):
    measured(lambda *_: 0.5)
    result = tune(config, None, 8, ["stride=int:1:2", "shape=choice:vector|scalar"], name="mine")
    complete = [trial for trial in result.trials if trial.state == "complete"]
    assert len(complete) == len({trial.spec for trial in complete}) == 4
    assert {trial.state for trial in result.trials} <= {"complete", "refused"}
    assert "gateskip has fewer trials" in result.notes[0] and find_result("mine", config.out) == result


def test_refused_draws_are_no_trials_and_others_take_their_place(config, measured):
    """The sampler repeats itself: what was best is near."""
    measured(lambda values, _: float(values.get("min_exit", 1)))
    result = tune(config.model_copy(update={"methods": ("calm",), "model": "nano"}), None, 14, name="mine")
    counted = [trial for trial in result.trials if trial.state == "complete"]
    assert len(counted) == len({trial.spec for trial in counted}) == 14 and not result.notes
    refused = [trial for trial in result.trials if trial.state == "refused"]
    assert all(trial.reason for trial in refused)


def test_what_is_done_is_not_done_again_and_another_recipe_is_refused(config, monkeypatch):
    first = tune(config, None, 1, PARAMS, name="mine", jobs=1)
    monkeypatch.setattr(trial_module, "carry_out", lambda *_: [])
    assert tune(config, None, 1, PARAMS, name="mine") == first
    with pytest.raises(UsageError, match="objective"):
        tune(config, Objective.parse("score@0.1"), 1, PARAMS, name="mine")
    with pytest.raises(UsageError, match="recipe"):
        tune(load_config("smoke", {**config.model_dump(), "seeds": 2}), None, 1, PARAMS, name="mine")
    with FileLock(config.out / "studies" / "mine" / "study.lock"), pytest.raises(UsageError, match="One process"):
        tune(config, None, 1, PARAMS, name="mine")
    atomic.write_text(config.out / "studies" / "mine" / "result.json", "{")
    with pytest.raises(EnvironmentProblem, match=r"result\.json.*cannot be read"):
        find_result("mine", config.out)
    assert tune(config, None, 1, PARAMS, name="mine") == first == find_result("mine", config.out)


def test_a_trial_that_fails_says_why_and_counts(config, monkeypatch):
    (training,) = plan(config, splits=("validation",)).trainings
    monkeypatch.setattr(trial_module, "carry_out", lambda *_: [Failure(str(training), "it burns")])
    result = tune(config, None, 2, PARAMS, name="mine")
    assert [trial.state for trial in result.trials] == ["fail", "fail"]
    assert "it burns" in result.trials[0].reason and "was not finished" in result.trials[1].reason
    assert json.loads((config.out / "studies" / "mine" / "result.json").read_text())["best"] == {}
    with pytest.raises(UsageError, match="no method"):
        tuned(config, result)


def test_a_full_disk_costs_no_trial(config, monkeypatch):
    full = [Failure("train gateskip", "No space left on device.", EnvironmentProblem.kind)]
    with monkeypatch.context() as patched:
        patched.setattr(trial_module, "carry_out", lambda *_: full)
        with pytest.raises(EnvironmentProblem, match="No space left"):
            tune(config, None, 1, PARAMS, name="mine")
    result = tune(config, None, 1, PARAMS, name="mine", jobs=1)
    assert [trial.state for trial in result.trials] == ["complete"]


def test_a_best_trial_that_other_seeds_do_not_confirm_does_not_stand(config, measured):
    asked = measured(lambda values, seeds: (0.9 if seeds == (1,) else 0.2) if values else 0.5)
    result = tune(config, None, 2, PARAMS, confirm=2, name="mine", jobs=1)
    tried = {"sparsity_weight": "0.03162"}
    assert asked == [((1,), {}), ((1,), tried), ((1001, 1002), {}), ((1001, 1002), tried)]
    assert [trial.value for trial in result.trials] == [0.5, 0.9]
    assert [trial.value for trial in result.confirmed] == [0.5, 0.2]
    assert result.best["gateskip"].spec == "gateskip" and result.default("gateskip").value == 0.5
    assert tuned(config, result).methods == ("gateskip",)
    assert find_result("mine", config.out) == result
    measured(lambda values, _: 0.2 if values else 0.5)  # defaults that are best need no confirmation
    assert not tune(config, None, 2, PARAMS, confirm=1, name="defaults", jobs=1).confirmed


@pytest.mark.parametrize(("out", "named"), [(Path("runs"), False), (Path("elsewhere"), True)])
def test_the_command_that_it_ends_with_names_the_output_folder_unless_it_is_the_default(capsys, out, named):
    trial = TrialResult("gateskip", 0, "complete", {"shape": "scalar"}, "gateskip[shape=scalar]", {}, 0.01, 0.5)
    _print(StudyResult("first", {"objective": "area", "confirm": []}, (trial,)), "nano", out)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "--tuned" in line)
    assert line.endswith("--methods gateskip --tuned first" + named * " --out elsewhere")
