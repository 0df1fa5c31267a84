"""Tasks of plugins: what does not fit is refused before the run."""

import re
from copy import copy
from dataclasses import replace

import pytest
from pydantic import ValidationError

from adaptive_bench import error_origin, registry
from adaptive_bench.errors import EnvironmentProblem, PluginFault
from adaptive_bench.evaluation.documents import answer_of
from adaptive_bench.evaluation.harness_data import files_of
from adaptive_bench.evaluation.lookup import find_task, load_task, setting_up
from adaptive_bench.progress import SilentReporter
from adaptive_bench.runs.run_checks import preflight as look_at


def test_runs_beside_the_files_of_a_task_are_none_of_them(tmp_path):
    for name in ("own.yaml", "data/rows.jsonl", "data/records/kept.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    before = files_of(tmp_path)
    assert len(before) == 3
    for out in (tmp_path, tmp_path / "out"):
        for name in ("records/a/env.json", "runs/b/config.yaml"):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text("{}")
        assert sorted(files_of(tmp_path)) == sorted(before)


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", "nope"), ("metrics", ()), ("training", 5), ("num_fewshot", "many")],
)
def test_a_field_that_is_something_else_is_refused_by_its_name(field, value):
    with pytest.raises(ValidationError, match=f"(?s)for Task\n{field}.*"):
        replace(find_task("nano_qa_ll"), **{field: value})


def test_choices_on_the_tested_documents_are_the_plugins_fault():
    task = replace(find_task("nano_qa_ll"), validation_split="test")
    with pytest.raises(PluginFault, match=r"validation_split of the task 'nano_qa_ll' names .*, got 'test'"):
        load_task(task, None, None)


def test_an_error_in_the_code_of_a_task_names_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(error_origin, "_watched", set())
    error_origin.watch(tmp_path)
    of_task, installed = tmp_path / "docs.py", tmp_path / ".venv" / "site-packages" / "library.py"
    with pytest.raises(PluginFault, match=r"ModuleNotFoundError.*docs.py, line 1, in"), setting_up("mine"):
        exec(compile("import nothing_there", of_task, "exec"))
    with pytest.raises(EnvironmentProblem, match="Install what it needs"), setting_up("mine"):
        exec(compile("import nothing_there", installed, "exec"))


@pytest.mark.parametrize("right", [-1, 2, [], "c"])
def test_a_right_answer_that_is_no_choice_is_refused(right):
    task = find_task("nano_qa_ll")
    harness = copy(load_task(task, None, None))
    harness.doc_to_choice, harness.doc_to_target = lambda doc: ["a", "b"], lambda doc: right
    with pytest.raises(EnvironmentProblem, match=rf"document 1 of 1 of 'nano_qa_ll' has {re.escape(repr(right))} for "):
        answer_of(harness, next(iter(harness.eval_docs)), "document 1 of 1 of 'nano_qa_ll'")


@pytest.mark.parametrize("right", [0, "b", [0, 1]])
def test_a_right_answer_is_a_number_a_text_or_several(right):
    task = find_task("nano_qa_ll")
    harness = copy(load_task(task, None, None))
    harness.doc_to_choice, harness.doc_to_target = lambda doc: ["a", "b"], lambda doc: right
    assert answer_of(harness, next(iter(harness.eval_docs)), "document 1 of 1 of 'nano_qa_ll'") == ("a", "b")


OWN = """
import json
import random
from pathlib import Path
from datasets import Dataset
from adaptive_bench.registry import register
from adaptive_bench.task import Example, Task

ROWS = [{{"question": f"Item {{n}}?", "options": ["a", "b"], "gold": n % 2}} for n in range(60)]
PARTS = {{"test": ROWS[:20], "validation": ROWS[20:30], "calibration": ROWS[30:40], "train": ROWS[40:]}}

def load(**_):
    {load}
    return {{name: Dataset.from_list(PARTS[name]) for name in ("test", "validation")}}

def training(request):
    return [Example(f"{{row['question']}} Answer:", " " + row["options"][row["gold"]]) for row in {drawn}]

register("tasks", "own")(
    Task("own", "", "loglikelihood", Path(__file__).parent / "own", ("acc,none",), {chance}, training,
         validation_split={split!r})
)
"""
SETTINGS = """
task: {named}
output_type: multiple_choice
custom_dataset: !function docs.load
test_split: {tested}
doc_to_text: "{{{{question}}}} Answer:"
doc_to_choice: "{choice}"
doc_to_target: {target}
metric_list: [{{metric: acc, aggregation: {aggregation}, higher_is_better: {higher}}}]
metadata: {metadata}
{more}
"""
SOUND = {
    "load": "pass", "drawn": "PARTS[request.split]", "chance": 0.5, "split": "validation", "named": "own",
    "tested": "test", "choice": "{{options}}", "target": "gold", "aggregation": "mean", "higher": "true",
    "metadata": "{version: 1}", "more": "",
}  # fmt: skip


@pytest.fixture
def preflight(config_of, tmp_path, monkeypatch):
    """Writes a task with some changes and looks at it as a run does before it computes anything."""

    def look(settings=None, **changes):
        monkeypatch.setattr(registry, "_registered", {})
        (folder := tmp_path / "own").mkdir()
        about = SOUND | changes
        plugin = OWN.format(**about)
        (tmp_path / "own.py").write_text(plugin)
        code = plugin.partition("register(")[0].replace("from adaptive_bench.registry import register\n", "")
        (folder / "docs.py").write_text(code)
        (folder / "own.yaml").write_text(SETTINGS.format(**about))
        registry.load_plugin(tmp_path / "own.py")
        config = config_of(tasks=("own",), train_on=("own",), **settings or {})
        return look_at(config, SilentReporter(), 1, timed=False)

    return look


def test_a_sound_task_passes(preflight):
    assert preflight().notes == []


LEAKING = "PARTS['test'] + [dict(row, question='Other ' + row['question']) for row in ROWS]"
EVERYTHING = {"train": {"steps": 80, "batch_size": 1}, "evaluation": {"limit": None}}


def test_test_documents_in_the_training_text_are_counted(preflight):
    """A quarter of the training text is the whole test, which nothing refuses."""
    drawn = f"({LEAKING} if request.split == 'train' else PARTS[request.split])"
    (note,) = preflight(EVERYTHING, drawn=drawn).notes
    assert note.startswith("20 of 20 test documents of own (100.0%) stand in the training text")


def test_worked_examples_of_the_tested_split_are_noted(preflight):
    (note,) = preflight({"evaluation": {"num_fewshot": 2}}).notes
    assert note.startswith("Worked examples of own are drawn from its split 'test', which is the one tested")


def test_nothing_is_said_of_examples_of_another_split(preflight):
    assert preflight({"evaluation": {"num_fewshot": 2}}, more="fewshot_split: validation").notes == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"named": "another"}, r"says `task: another`"),
        ({"tested": "exam"}, "names the test_split 'exam', but its documents have 'test', 'validation'"),
        ({"choice": "{{missing}}"}, "'missing' is undefined in a template"),
        ({"drawn": "[]"}, "'own' .*own.py.* gave none for 'calibration'"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_computed(preflight, changes, said):
    with pytest.raises(PluginFault, match=f"(?s){said}"):
        preflight(**changes)


def test_a_task_is_registered_under_its_name(preflight, monkeypatch):
    monkeypatch.setitem(globals(), "OWN", OWN.replace('Task("own"', 'Task("owned"'))
    with pytest.raises(PluginFault, match="registered under its name, got name='owned' under 'own'"):
        preflight()
