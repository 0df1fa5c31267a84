"""What a result depends on may change between two runs, or under one: it is measured anew or refused, never kept."""

import json

import pytest
import torch
from finished_run import change

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs import evaluation_work as evaluation
from adaptive_bench.runs import plan, run
from adaptive_bench.task import Task

pytestmark = pytest.mark.slow


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
    task = Task("mine", "", "loglikelihood", folder, ("acc,none",), 0.5, None)
    monkeypatch.setitem(registry._registered, ("tasks", "mine"), (task, "this test"))
    return folder


def write_documents(folder, gold):
    lines = [json.dumps({"id": number, "gold": gold}) for number in range(4)]
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n")


def test_one_table_compares_the_same_documents_only(config_of, own_task, monkeypatch):
    """Where keys do not know (the hub gives another revision), the records themselves are compared."""
    monkeypatch.setattr("adaptive_bench.runs.run_plan.task_inputs", lambda *_: {})
    monkeypatch.setattr(evaluation, "check_inputs", lambda *_: None)
    config = config_of("dense", tasks=("mine",), train={"steps": 0})
    run(config)
    write_documents(own_task, gold=1)
    with pytest.raises(EnvironmentProblem, match="same documents") as error:
        run(config.model_copy(update={"methods": ("dense", "static_depth")}))
    assert str(error.value).count("/records/") == 2


def test_other_versions_in_one_table_are_said(config_of):
    config = config_of("dense")
    first = run(config)
    (made,) = {row["made_with"] for row in first.rows}
    assert f"torch {torch.__version__}" in made and not any("same versions" in text for text in first.warnings)
    (sweep,) = plan(config).sweeps
    change(sweep.folder, "env", torch="1.0", device_name="another")
    outcome = run(config, table_only=True)
    assert any("same versions on the same device" in text for text in outcome.warnings)
    assert all("torch 1.0" in row["made_with"] and torch.__version__ in row["made_with"] for row in outcome.rows)


def test_what_goes_on_elsewhere_says_both(config_of):
    config = config_of("random_skip")
    run(config)
    (sweep,) = plan(config).sweeps
    change(sweep.folder, "env", torch="1.0")
    points = sweep.record.read("points")
    sweep.record.write("points", dict(list(points.items())[:-1]))
    outcome = run(config)
    assert all("torch 1.0" in row["made_with"] and torch.__version__ in row["made_with"] for row in outcome.rows)
    assert any("same versions on the same device" in text for text in outcome.warnings)
    assert "machine" not in sweep.record.read("env")["before"][0]
