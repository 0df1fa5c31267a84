"""What a result depends on may change between two runs, or under one: it is measured anew or refused, never kept."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs import plan, run
from adaptive_bench.runs.work import evaluation, training
from adaptive_bench.store.atomic import write_sealed
from adaptive_bench.store.results import read_table
from adaptive_bench.task import Task

pytestmark = pytest.mark.slow


def other_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    save_file({name: -value for name, value in load_file(file).items()}, file, {"format": "pt"})


def untimed(rows):
    return [{key: value for key, value in row.items() if key not in ("seconds", "made_with")} for row in rows]


@pytest.fixture
def own_model(model_folder, tmp_path):
    return shutil.copytree(model_folder, tmp_path / "model")


@pytest.mark.parametrize("moment", ["before the second training", "before the second evaluation"])
def test_weights_that_change_after_planning_are_not_measured(config_of, own_model, monkeypatch, moment):
    config = config_of("dense,random_skip[trained=true]", model=str(own_model), train={"target": 0.1})
    done = []
    train, evaluate = training.train, evaluation.evaluate

    def then_swap(original, when):
        def call(*arguments, **options):
            found = original(*arguments, **options)
            if moment == when and not done:
                done.append(other_weights(own_model))
            return found

        return call

    monkeypatch.setattr(training, "train", then_swap(train, "before the second training"))
    monkeypatch.setattr(evaluation, "evaluate", then_swap(evaluate, "before the second evaluation"))
    outcome = run(config, jobs=1)
    assert done and any("planned with" in failure.reason for failure in outcome.failures)
    again = run(config, jobs=1)  # plans with what is there now
    assert not again.failures
    fresh = run(config.model_copy(update={"out": config.out.with_name("fresh")}), jobs=1)
    assert untimed(again.rows) == untimed(fresh.rows)


TASK_YAML = """
task: mine
output_type: multiple_choice
custom_dataset: !function docs.load
test_split: test
doc_to_text: "Which letter?"
doc_to_choice: ["a", "b"]
doc_to_target: gold
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1}
"""
TASK_CODE = """
import json
from pathlib import Path
import datasets

def load(**_):
    lines = (Path(__file__).parent / "data.jsonl").read_text().splitlines()
    return datasets.DatasetDict({"test": datasets.Dataset.from_list([json.loads(line) for line in lines])})
"""


@pytest.fixture
def own_task(tmp_path, monkeypatch):
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "mine.yaml").write_text(TASK_YAML)
    (folder / "docs.py").write_text(TASK_CODE)
    write_documents(folder, gold=0)
    task = Task("mine", "", "loglikelihood", folder, ("acc,none",), 0.5, (0.0, 0.1), None)
    monkeypatch.setitem(registry._registered, ("tasks", "mine"), (task, "this test"))
    return folder


def write_documents(folder, gold):
    lines = [json.dumps({"id": number, "gold": gold}) for number in range(4)]
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n")


def test_documents_that_change_are_asked_anew(config_of, own_task):
    config = config_of("dense", tasks=("mine",), train={"steps": 0})
    run(config)
    write_documents(own_task, gold=1)
    both = config.model_copy(update={"methods": ("dense", "static_depth")})
    rows = run(both).rows
    fresh = run(both.model_copy(update={"out": config.out.with_name("fresh")})).rows
    assert untimed(rows) == untimed(fresh)


def test_one_table_compares_the_same_documents_only(config_of, own_task, monkeypatch):
    """Where keys do not know (the hub gives another revision), the records themselves are compared."""
    monkeypatch.setattr("adaptive_bench.runs.planning.plan.task_inputs", lambda *_: {})
    monkeypatch.setattr(evaluation, "check_inputs", lambda *_: None)
    config = config_of("dense", tasks=("mine",), train={"steps": 0})
    run(config)
    write_documents(own_task, gold=1)
    with pytest.raises(EnvironmentProblem, match="same documents") as error:
        run(config.model_copy(update={"methods": ("dense", "static_depth")}))
    assert str(error.value).count("/records/") == 2


def points(config):
    (sweep,) = plan(config).sweeps
    return sorted(file for file in sweep.folder.glob("[0-9]*.json"))


def edit(file, change, *, seal):
    values = json.loads(file.read_text())
    change(values)
    values.pop("content_sha256")
    write_sealed(file, values) if seal else file.write_text(json.dumps(values))


def halve_score(values):
    values["scores"] = {metric: 0.5 * score + 0.01 for metric, score in values["scores"].items()}


def more_saved(values):
    values["savings"]["net"] = 0.9


def test_a_score_without_its_seal_is_measured_again(config_of):
    config = config_of("dense")
    rows = run(config).rows
    for file in points(config):
        edit(file, halve_score, seal=False)
    assert untimed(run(config).rows) == untimed(rows)


@pytest.mark.parametrize("change", [halve_score, more_saved])
def test_a_sealed_number_that_samples_and_counts_do_not_give_is_refused(config_of, change):
    config = config_of("dense")
    run(config)
    edit(points(config)[0], change, seal=True)
    with pytest.raises(EnvironmentProblem, match="stay as they were"):
        run(config, table_only=True)


def test_a_table_that_was_edited_is_refused(config_of):
    folder = run(config_of("dense")).folder
    rows = read_table(folder / "table.json")
    (folder / "table.json").write_text(json.dumps([row | {"score": 10.0} for row in rows]))
    with pytest.raises(EnvironmentProblem, match=r"table\.json .* changed since"):
        read_table(folder / "table.json")
    about = json.loads((folder / "run.json").read_text())
    about["files"]["table.json"] = hashlib.sha256((folder / "table.json").read_bytes()).hexdigest()
    (folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(EnvironmentProblem, match=r"run\.json .* changed since"):
        read_table(folder / "table.json")


def test_other_versions_in_one_table_are_said(config_of):
    config = config_of("dense")
    first = run(config)
    (made,) = {row["made_with"] for row in first.rows}
    assert f"torch {torch.__version__}" in made and not any("same versions" in text for text in first.warnings)
    (sweep,) = plan(config).sweeps
    about = json.loads((sweep.folder / "env.json").read_text())
    about.pop("content_sha256")
    write_sealed(sweep.folder / "env.json", about | {"torch": "1.0", "device_name": "another"})
    outcome = run(config, table_only=True)
    assert any("same versions on the same device" in text for text in outcome.warnings)
    assert all("torch 1.0" in row["made_with"] and torch.__version__ in row["made_with"] for row in outcome.rows)


def test_what_goes_on_elsewhere_says_both(config_of):
    config = config_of("random_skip")
    run(config)
    (sweep,) = plan(config).sweeps
    about = json.loads((sweep.folder / "env.json").read_text())
    about.pop("content_sha256")
    write_sealed(sweep.folder / "env.json", about | {"torch": "1.0"})
    file = points(config)[-1]
    file.unlink()
    outcome = run(config)
    assert all("torch 1.0" in row["made_with"] and torch.__version__ in row["made_with"] for row in outcome.rows)
    assert any("same versions on the same device" in text for text in outcome.warnings)
    assert "machine" not in json.loads((sweep.folder / "env.json").read_text())["before"][0]
