"""Tasks and methods of plugins: what does not fit is refused before the run."""

import re
from copy import copy
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from adaptive_bench import errors, registry
from adaptive_bench.errors import EnvironmentProblem, PluginFault
from adaptive_bench.evaluation.documents import answer_of
from adaptive_bench.evaluation.loading import files_of, load_task, setting_up
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.method import Decision, DialSpec, Method, MethodConfig, MethodSpec
from adaptive_bench.model import AdaptiveModel
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
    monkeypatch.setattr(errors, "_watched", set())
    errors.watch(tmp_path)
    of_task, installed = tmp_path / "docs.py", tmp_path / ".venv" / "site-packages" / "library.py"
    with pytest.raises(PluginFault, match=r"ModuleNotFoundError.*docs.py, line 1, in"), setting_up("mine"):
        exec(compile("import nothing_there", of_task, "exec"))
    with pytest.raises(EnvironmentProblem, match="Install what it needs"), setting_up("mine"):
        exec(compile("import nothing_there", installed, "exec"))


@pytest.mark.parametrize("right", [-1, 2, [], "c", 0, "b", [0, 1]])
def test_a_right_answer_is_a_number_a_text_or_several_of_the_choices(right):
    harness, where = copy(load_task(find_task("nano_qa_ll"), None, None)), "document 1 of 1 of 'nano_qa_ll'"
    harness.doc_to_choice, harness.doc_to_target = lambda doc: ["a", "b"], lambda doc: right
    if right in (0, "b", [0, 1]):
        assert answer_of(harness, next(iter(harness.eval_docs)), where) == ("a", "b")
        return
    with pytest.raises(EnvironmentProblem, match=rf"{where} has {re.escape(repr(right))} for "):
        answer_of(harness, next(iter(harness.eval_docs)), where)


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
    Task({called!r}, "", "loglikelihood", Path(__file__).parent / "own", ("acc,none",), {chance}, training,
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
    "called": "own", "tested": "test", "choice": "{{options}}", "target": "gold", "aggregation": "mean",
    "higher": "true", "metadata": "{version: 1}", "more": "",
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


LEAKING = "PARTS['test'] + [dict(row, question='Other ' + row['question']) for row in ROWS]"
EVERYTHING = {"train": {"steps": 80, "batch_size": 1}, "evaluation": {"limit": None}}
SHOTS = {"evaluation": {"num_fewshot": 2}}


@pytest.mark.parametrize(
    ("settings", "changes", "note"),
    [
        ({}, {}, None),
        # A quarter of the training text is the whole test, which nothing refuses.
        (
            EVERYTHING,
            {"drawn": f"({LEAKING} if request.split == 'train' else PARTS[request.split])"},
            "20 of 20 test documents of own (100.0%) stand in the training text",
        ),
        (SHOTS, {}, "Worked examples of own are drawn from its split 'test', which is the one tested"),
        (SHOTS, {"more": "fewshot_split: validation"}, None),
    ],
    ids=["sound", "test documents taught", "examples of the test", "examples of another split"],
)
def test_what_a_reader_should_know_is_noted(preflight, settings, changes, note):
    notes = preflight(settings, **changes).notes
    assert notes == [] if note is None else len(notes) == 1 and notes[0].startswith(note)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"named": "another"}, r"no readable YAML file that says `task: own`"),
        ({"called": "owned"}, "registered under its name, got name='owned' under 'own'"),
        ({"tested": "exam"}, "cannot be set up: KeyError: .*exam"),
        ({"choice": "{{missing}}"}, "'missing' is undefined"),
        ({"drawn": "[]"}, "'own' .*own.py.* gave none for 'train'"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_computed(preflight, changes, said):
    with pytest.raises(PluginFault, match=f"(?s){said}"):
        preflight(**changes)


# What a method answers has the shape and type that the engine takes.


class Mine(Method):
    """Skips every other token where its dial is up."""

    Config = MethodConfig
    dial = DialSpec("share", 0.0, 1.0, 0.0)

    def dial_for(self, saved_tokens):
        return saved_tokens

    def decide(self, view):
        keep = view.call.positions % 2 == 0 if self.value and not self.training else torch.ones_like(view.call.valid)
        return self.decision(view, keep)

    def decision(self, view, keep):
        return Decision(keep=keep)


def tried(monkeypatch, make_backbone, **parts):
    """Take a training step, a pass with skipping and one more token."""
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("methods", "odd")(type("Odd", (Mine,), parts))
    model = AdaptiveModel.build(make_backbone("llama", num_hidden_layers=2), MethodSpec("odd")).train()
    ids = torch.randint(1, 60, (2, 24))
    later = torch.arange(24).expand_as(ids) >= 12
    model.begin_step(1, 1)
    model(input_ids=ids, attention_mask=torch.ones_like(ids), continuation_mask=later, labels=ids).loss.backward()
    model.eval().dial = model.method.checked_dial(0.2)
    with torch.no_grad():
        cache = model(input_ids=ids, continuation_mask=later, use_cache=True).past_key_values
        model(input_ids=ids[:, :1], past_key_values=cache)


def column(keep, value):
    return torch.full((*keep.shape, 1), value)


def raises_when_writing(view, keep):
    if view.call.phase == "decode":
        raise ValueError("only now")
    return Decision(keep=keep)


DECISIONS = {
    r"Odd\.decide must give a Decision, got NoneType": lambda view, keep: None,
    r"keep is a boolean tensor of shape \(2, 24\) .* got torch.float32": lambda view, keep: Decision(keep=keep.float()),
    r"keep is a boolean tensor .* got torch.bool of shape \(2, 1\)": lambda view, keep: Decision(keep=keep[:, :1]),
    "scale has floating-point numbers .* got torch.int64": lambda view, keep: Decision(scale=column(keep, 1)),
    "input_scale has floating-point .* got float": lambda view, keep: Decision(input_scale=2.0),
    "otherwise gives numbers of shape": lambda view, keep: Decision(keep=keep, otherwise=lambda tokens: view.hidden),
    "only now": raises_when_writing,
}


def test_a_sound_method_passes(monkeypatch, make_backbone):
    def all_parts(view, keep):
        instead = None if view.call.training else lambda tokens: view.hidden.flatten(0, 1)[tokens] * 0.1
        return Decision(keep=keep, scale=None if view.call.training else column(keep, 0.5), otherwise=instead)

    tried(monkeypatch, make_backbone)
    tried(monkeypatch, make_backbone, decision=lambda self, view, keep: all_parts(view, keep))


@pytest.mark.parametrize("said", DECISIONS)
def test_an_odd_decision_is_refused_with_the_method_and_the_rule(said, monkeypatch, make_backbone):
    decision = DECISIONS[said]
    with pytest.raises((PluginFault, ValueError), match=said):
        tried(monkeypatch, make_backbone, decision=lambda self, view, keep: decision(view, keep))


def test_answers_ahead_are_one_for_each_site(monkeypatch, make_backbone):
    with pytest.raises(PluginFault, match="decide_ahead must give None or 4 decisions"):
        tried(monkeypatch, make_backbone, decide_ahead=lambda self, call: [Decision()] * 9, decide=Method.decide)
