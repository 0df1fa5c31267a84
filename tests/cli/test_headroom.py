"""`adaptive-bench headroom` on a tiny model and tasks of a plugin."""

import json

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from adaptive_bench.headroom import study
from adaptive_bench.model import AdaptiveModel


@pytest.fixture
def measure(command, model_folder, toy_plugin):
    """`measure("toy_write --json")`: the command on the tiny model."""
    return lambda tasks: command(f"headroom {model_folder} --plugin {toy_plugin} --device cpu --tasks {tasks}")


@pytest.fixture
def evaluated(monkeypatch):
    """Specs of the models that are evaluated; with `stop_at` set Ctrl-C comes before so many are."""
    specs, whole = [], study.evaluate

    def evaluate(model, *arguments, **more):
        if len(specs) == evaluate.stop_at:
            raise KeyboardInterrupt
        specs.append(str(model.spec))
        return whole(model, *arguments, **more)

    evaluate.stop_at, evaluate.specs = None, specs
    monkeypatch.setattr(study, "evaluate", evaluate)
    return evaluate


def test_the_record_and_the_table(measure, tmp_path):
    found = measure("toy_write,toy_choose --output record.json --levels 0.3")
    assert found.exit_code == 0, found.stderr
    assert [line for line in found.stdout.splitlines() if len(line) > 80] == []
    assert "Sites that matter, as for `run`: " in found.stdout and " of 4 sites" in found.stdout
    assert "Oracles bound what methods can do on this model. They are no methods." in found.stdout
    record = json.loads((tmp_path / "record.json").read_bytes())
    assert [task["task"] for task in record["tasks"]] == ["toy_write", "toy_choose"]
    for task in record["tasks"]:
        (level,) = task["levels"]
        assert (level["level"], level["reached"]) == (0.3, True)
        saved, weights = [one["saved"] for one in task["sets"]], level["static_weights"]
        assert saved[0] == 0.0 and sum(weights) == pytest.approx(1.0)
        assert sum(w * s for w, s in zip(weights, saved, strict=True)) >= 0.3 - 1e-9
        assert level["gold"] >= level["static"] - 1e-12
        assert set(level["headroom"]) == {"difference", "low", "high", "p", "holds_0"}
        assert task["documents"] == 6 and len(task["sites"]["rows"]) == 4


def test_nothing_is_measured_twice_and_what_is_measured_anew_says_the_same(measure, evaluated, tmp_path):
    """An interruption keeps what was measured before it."""
    evaluated.stop_at = 3
    stopped = measure("toy_write --json")
    assert stopped.exit_code == 130 and "Finished work is kept" in stopped.stderr
    before, evaluated.stop_at = list(evaluated.specs), None
    first = measure("toy_write --json")
    assert first.exit_code == 0, first.stderr
    (folder,) = (tmp_path / "runs" / "headroom").iterdir()
    count = sum(not file.stem.startswith("sets-") for file in folder.glob("*-*.json"))
    assert evaluated.specs[:3] == before and len(evaluated.specs) == count
    assert measure("toy_write --json").stdout == first.stdout and len(evaluated.specs) == count
    content = (folder / "sites.json").read_text()
    (folder / "sites.json").write_text(content[:-9])  # cannot be read
    assert measure("toy_write --json").stdout == first.stdout and (folder / "sites.json").read_text() == content
    assert json.loads(measure("toy_write --json --out two").stdout) == json.loads(first.stdout)


def test_whole_texts_cannot_be_asked_again(measure):
    (task,) = json.loads(measure("toy_read --json").stdout)["tasks"]
    assert "whole texts" in task["asked_once"]
    reached = [level for level in task["levels"] if level["reached"]]
    assert reached and all(level["headroom"] is None for level in reached)
    assert all(level["gold"] <= level["static"] + 1e-12 for level in reached)  # lower is better
    assert sum(task["sets"][0]["scores"][0]) / 6 == pytest.approx(task["sets"][0]["test"][0])


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        ("toy_write --levels 1.5", 2, "--levels is wrong: should be less than 1"),
        ("toy_odd", 2, "a metric that is a mean over documents"),
        ("toy_untested", 2, "validation documents"),
        ("toy_empty", 1, "Plugin fault: The task 'toy_empty' cannot be set up"),
    ],
)
def test_bad_input_is_named(measure, arguments, exit_code, words):
    found = measure(arguments)
    assert found.exit_code == exit_code and words in found.said


def test_a_model_that_was_trained_to_skip_is_refused(command, model_folder, toy_plugin, tmp_path):
    model = AdaptiveModel.build(AutoModelForCausalLM.from_pretrained(model_folder), "gateskip", seed=3)
    model.save_pretrained(tmp_path / "saved", AutoTokenizer.from_pretrained(model_folder))
    found = command(f"headroom saved --plugin {toy_plugin} --device cpu --tasks toy_write")
    assert found.exit_code == 2 and "trained as gateskip, which does not fit dense" in found.said


def test_a_folder_that_cannot_be_read_is_named(measure, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "headroom").write_text("a file, not a folder")
    found = measure("toy_write")
    assert found.exit_code == 1 and "Earlier measurements must be readable" in found.said
