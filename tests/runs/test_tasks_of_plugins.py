"""Tasks of plugins: what does not fit is refused before the run."""

import math
import re
from copy import copy
from dataclasses import replace

import pytest

from adaptive_bench import faults, registry
from adaptive_bench.errors import EnvironmentProblem, PluginFault
from adaptive_bench.evaluation.documents import answer_of
from adaptive_bench.evaluation.harness_data import files_of
from adaptive_bench.evaluation.lookup import find_task, load_task, setting_up
from adaptive_bench.progress import SilentReporter
from adaptive_bench.runs.checks.findings import Findings
from adaptive_bench.runs.checks.preflight import preflight as look_at
from adaptive_bench.runs.checks.tasks import check_training_text
from adaptive_bench.task import Example


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
    [
        ("training", lambda: []),
        ("training", lambda request, more: []),
        ("folder", "a text"),
        ("metrics", ()),
        ("metrics", "acc,none"),
        ("training", 5),
        ("kind", "nope"),
        ("levels", ()),
        ("levels", (0, 5)),
        ("levels", (0.3, 0.3)),
        ("levels", 0.3),
        ("chance", "a"),
        ("chance", math.inf),
        ("num_fewshot", -1),
        ("data_folders", "squad"),
        ("data_folders", ("../squad",)),
        ("data_folders", ("/squad",)),
        ("validation_split", 5),
    ],
)
def test_a_field_that_is_something_else_is_the_plugins_fault(field, value):
    with pytest.raises(PluginFault, match=f"Of the task 'nano_qa_ll', {field} is .*, got "):
        replace(find_task("nano_qa_ll"), **{field: value})


def test_choices_on_the_tested_documents_are_the_plugins_fault():
    task = replace(find_task("nano_qa_ll"), validation_split="test")
    with pytest.raises(PluginFault, match=r"'nano_qa_ll', validation_split names .*, got 'test'"):
        load_task(task, None, None)


@pytest.mark.parametrize(
    "given",
    [["a text"], [Example("a question", None)], None, [("a", "b")], (one for one in ()), [Example("a", "\udcff")]],
)
def test_training_text_that_is_no_text_is_the_plugins_fault(given, config_of):
    task = replace(find_task("nano_qa_ll"), training=lambda request: given)
    with pytest.raises(PluginFault, match="'nano_qa_ll' is a list of Examples of two texts"):
        check_training_text(task, config_of(), None, 64, Findings())


def test_an_error_in_the_code_of_a_task_names_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "_watched", set())
    faults.watch(tmp_path)
    of_task, installed = tmp_path / "docs.py", tmp_path / ".venv" / "site-packages" / "library.py"
    with pytest.raises(PluginFault, match=r"ModuleNotFoundError.*docs.py, line 1, in"), setting_up("mine"):
        exec(compile("import nothing_there", of_task, "exec"))
    with pytest.raises(EnvironmentProblem, match="Install what it needs"), setting_up("mine"):
        exec(compile("import nothing_there", installed, "exec"))


@pytest.mark.parametrize("right", [-1, 2, [0, -1], [], "c", None, 0.5])
def test_a_right_answer_that_is_no_choice_is_refused(right):
    task = find_task("nano_qa_ll")
    harness = copy(load_task(task, None, None))
    harness.doc_to_choice, harness.doc_to_target = lambda doc: ["a", "b"], lambda doc: right
    with pytest.raises(EnvironmentProblem, match=rf"document 1 of 1 of 'nano_qa_ll' has {re.escape(repr(right))} for "):
        answer_of(harness, next(iter(harness.eval_docs)), "document 1 of 1 of 'nano_qa_ll'")


@pytest.mark.parametrize("right", [0, 1, "b", [0, 1], ["a"]])
def test_a_right_answer_is_a_number_a_text_or_several(right):
    task = find_task("nano_qa_ll")
    harness = copy(load_task(task, None, None))
    harness.doc_to_choice, harness.doc_to_target = lambda doc: ["a", "b"], lambda doc: right
    assert answer_of(harness, next(iter(harness.eval_docs)), "document 1 of 1 of 'nano_qa_ll'") == ("a", "b")


def test_the_same_text_for_every_choice_is_no_choice():
    harness = copy(load_task(find_task("nano_qa_ll"), None, None))
    harness.doc_to_choice, harness.doc_to_target = lambda doc: ["a", "a"], lambda doc: 0
    with pytest.raises(EnvironmentProblem, match="choices that differ, but document 3"):
        answer_of(harness, next(iter(harness.eval_docs)), "document 3")


def test_a_value_that_is_missing_is_named_where_the_question_shows_none():
    harness = copy(load_task(find_task("nano_math"), None, None))
    document = {"question": "None of the above?", "hint": None, "answer": "4"}
    harness.doc_to_target = lambda doc: doc["answer"]
    harness.doc_to_text = lambda doc: doc["question"] + (doc["hint"] or "")
    assert answer_of(harness, document, "document 3") == ("4",)
    harness.doc_to_text = lambda doc: f"{doc['question']} ({doc['hint']})"
    with pytest.raises(EnvironmentProblem, match=r"document 3 has no value \(null\) in 'hint'"):
        answer_of(harness, document, "document 3")


def test_training_text_without_a_completion_is_the_plugins_fault():
    task = replace(find_task("nano_qa_ll"), training=lambda request: [Example("a question", " ")])
    with pytest.raises(PluginFault, match="gives one without any"):
        task.examples(None)


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
    Task("own", "", "loglikelihood", Path(__file__).parent / "own", ("acc,none",), {chance}, (0.0, 0.1), training,
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
        ({"load": "return None"}, "a datasets.Dataset for each split, got NoneType"),
        ({"load": "return PARTS"}, "a datasets.Dataset for each split, got list for 'test'"),
        ({"load": "PARTS['test'] = []"}, "the split 'test', on which it is tested, has no documents"),
        ({"choice": "{{[]}}"}, r"its first document has 0 for \[\]"),
        ({"choice": "{{missing}}"}, "'missing' is undefined in a template"),
        ({"load": "random.shuffle(PARTS['test'])"}, "the same documents each time .* give its draws a seed"),
        ({"metadata": "hello"}, "metadata of a task are keys and values, got 'hello'"),
        ({"more": "test_split: validation"}, "says 'test_split' again in line 11"),
        ({"aggregation": "meen"}, "`aggregation: meen`"),
        ({"higher": "false"}, "Of the metric 'acc' higher is better"),
        ({"chance": 50}, "from 0 to 1 for 'acc,none', but the chance .* is 50"),
        ({"split": "dev"}, "splits of its documents, 'test', 'validation', got 'dev'"),
        ({"load": "PARTS['validation'] = ROWS[:20]"}, "20 of 20 documents of the validation_split .* are tested"),
        (
            {"more": "filter_list: [{name: none, filter: [{function: no_such}]}]"},
            "names the filter 'no_such', and lm-eval has none",
        ),
        (
            {"more": "filter_list: [{name: none, filter: [{function: regex, regex_patern: a}]}]"},
            "of 'none' in that of 'own' one cannot: TypeError: .*regex_patern",
        ),
        ({"drawn": "[]"}, "'own' .*own.py.* gave none for 'calibration'"),
        ({"drawn": "PARTS['test']"}, "20 of 20 training examples .* are questions that it is tested on"),
        ({"drawn": "PARTS['train']"}, "20 of 20 training examples .* are in its calibration text"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_computed(preflight, changes, said):
    with pytest.raises(PluginFault, match=f"(?s){said}"):
        preflight(**changes)


def test_a_task_is_registered_under_its_name(preflight, monkeypatch):
    monkeypatch.setitem(globals(), "OWN", OWN.replace('Task("own"', 'Task("owned"'))
    with pytest.raises(PluginFault, match="registered under its name, got name='owned' under 'own'"):
        preflight()
