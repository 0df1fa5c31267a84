"""Edits of what a run rests on, one at a time: a record is made anew if and only if the edit can change its numbers.

What a record is named after decides that, so the names in two plans are compared, and nothing is computed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from edited_world import World, other_weights

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem
from adaptive_bench.runs import evaluation_work, plan, run, training_work

Edit = Callable[[World], Any]
# What is made anew: trainings and what hangs on them, all of them or those of one method; or sweeps alone.
EDITED, OF_FILE = {"dense on edited", "mine on edited"}, {"dense on of_file", "mine on of_file"}
SWEEPS = EDITED | OF_FILE
ALL = SWEEPS | {"dense", "mine"}
MINE = {"mine", "mine on edited", "mine on of_file"}


def text(file: str, old: str, new: str, **how: Any) -> Edit:
    """An edit that puts a text in place of another one."""
    return lambda world: world.change(file, old, new, **how)


def of_json(file: str, change: Callable[[Any], None]) -> Edit:
    def make(world: World) -> None:
        values = json.loads((world.folder / file).read_text())
        change(values)
        (world.folder / file).write_text(json.dumps(values))

    return make


def swap_tokens(values: dict[str, Any]) -> None:
    vocabulary = values["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]


def turn_otherwise(values: dict[str, Any]) -> None:
    values.update(rope_theta=17.0, rope_parameters={"rope_type": "default", "rope_theta": 17.0})


def template(world: World) -> None:
    (world.folder / "model/chat_template.jinja").write_text("{{ messages[0]['content'] }}")


def renamed(world: World) -> None:
    (world.folder / "data/extra/rows.jsonl").rename(world.folder / "data/extra/other.jsonl")


GOLD = ('"gold": 1', '"gold": 0')
# By what is edited: how, and what is made anew.
EDITS: dict[str, tuple[Edit, set[str]]] = {
    "tokenizer: vocabulary": (of_json("model/tokenizer.json", swap_tokens), ALL),
    "chat template beside the tokenizer": (template, ALL),
    "model config: rope_theta": (of_json("model/config.json", turn_otherwise), ALL),
    "weights: size and time kept": (other_weights, ALL),
    "documents: a question": (text("task/data.jsonl", "xx", "vw"), EDITED),
    "documents: the same size and time": (text("task/data.jsonl", *GOLD, keep_time=True), EDITED),
    "documents: worked examples": (text("task/shots.jsonl", "Item 20", "Thing 20"), EDITED),
    "documents of a file the YAML names": (text("shared/rows.jsonl", "Item 7", "Atom 7", keep_time=True), OF_FILE),
    "template": (text("task/edited.yaml", "Which letter?", "Say a or b:"), EDITED),
    "metric in an included YAML elsewhere": (text("shared/metric.yaml", "metric: acc", "metric: acc_norm"), EDITED),
    "training text": (text("task/train.jsonl", "Item 1:", "Atom 1:", keep_time=True), ALL),
    "calibration text": (text("task/calibration.jsonl", "Item 9:", "Thing 9:"), SWEEPS),
    "local data: a row": (text("data/extra/rows.jsonl", "Item 30", "Thing 30"), {"dense on edited"}),
    "local data: file renamed": (renamed, {"dense on edited"}),
}
# The same of what is read by a process that starts afterwards.
CODE: dict[str, tuple[Edit, set[str]]] = {
    "method: a constant": (text("mine.py", "SALT = 3", "SALT = 4"), MINE),
    "method: helper module": (text("edited_method_helper.py", "1.0", "0.5"), MINE),
    "method: file of numbers beside it": (text("factor.json", "1.0", "0.5"), MINE),
    "method: base class in another plugin": (text("parent.py", "salt = 0", "salt = 9"), MINE),
    "worked examples in the plugin": (text("task_plugin.py", "num_fewshot=1", "num_fewshot=0"), SWEEPS),
    "code of the documents": (text("task/docs.py", "row |", "row | {'more': 1} |"), EDITED),
    "helper of the documents' code": (text("task/edited_task_helper.py", "return text", "return text * 2"), EDITED),
    "code that processes documents": (text("file_task/process.py", "File: ", "Text: "), OF_FILE),
}


def names(world: World, **changes: Any) -> dict[str, str]:
    """The records of a plan: what each is of, and its name."""
    planned = plan(world.config(**changes))
    home = planned.config.out / "records"
    trained = {training.spec.name: training.folder for training in planned.trainings}
    swept = {f"{sweep.spec.name} on {sweep.task}": sweep.folder for sweep in planned.sweeps}
    return {what: str(folder.relative_to(home)) for what, folder in (trained | swept).items()}


@pytest.mark.parametrize("name", EDITS | CODE)
def test_what_an_edit_can_change_is_made_anew_and_nothing_else(world: World, name: str) -> None:
    make, anew = (EDITS | CODE)[name]
    world.restore()
    changes = world.local if name.startswith("local data") else {}
    before = names(world, **changes)
    make(world)
    if name in CODE:
        world.load()
    after = names(world, **changes)
    assert {what for what in after if after[what] != before.get(what)} == anew


@pytest.mark.parametrize("file", ["mine.py", "task/edited_task_helper.py"])
def test_code_that_changed_since_it_was_read_is_refused(world: World, file: str) -> None:
    world.restore()
    plan(world.config())
    world.change(file, *{"mine.py": ("SALT = 3", "SALT = 4")}.get(file, ("return text", "return text.upper()")))
    with pytest.raises(AdaptiveBenchError, match=file.rpartition("/")[2].replace(".", r"\.")):
        run(world.config(), jobs=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (text("task/data.jsonl", '"gold": 0', '"gold": 1'), "its files"),
        (other_weights, "planned with"),
        (text("task/train.jsonl", "Item 1:", "Thing 1:"), "planned with"),
    ],
    ids=["documents", "weights", "training text"],
)
def test_what_changes_while_a_run_goes_on_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, make: Edit, told: str
) -> None:
    world.restore()
    train, done = training_work.train, []

    def then(*arguments: Any, **options: Any) -> Any:
        found = train(*arguments, **options)
        if not done:
            done.append(make(world))
        return found

    monkeypatch.setattr(training_work, "train", then)
    monkeypatch.setattr("adaptive_bench.jobs.pool.plugins_of", lambda job: set())  # in this process
    found = run(world.config(methods=("dense", "gateskip")), jobs=1)
    assert any(told in str(failure) for failure in found.failures)


@pytest.mark.slow
def test_one_table_compares_the_same_documents_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where keys do not know (the hub gives another revision), the records themselves are compared."""
    monkeypatch.setattr("adaptive_bench.runs.run_plan.task_inputs", lambda *_: {})
    monkeypatch.setattr(evaluation_work, "check_inputs", lambda *_: None)
    world.restore()
    config = world.config(methods="dense", tasks=("edited",), train={"steps": 0})
    run(config, jobs=1)
    world.change("task/data.jsonl", *GOLD)
    with pytest.raises(EnvironmentProblem, match="same documents") as error:
        run(config.model_copy(update={"methods": ("dense", "static_depth")}), jobs=1)
    assert str(error.value).count("/records/") == 2
