"""Edits of what a run rests on, one at a time: a record is made anew if and only if the edit can change its numbers.

What a record is named after decides that, so the names in two plans are compared, and nothing is computed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from edited_world import World, other_weights

from adaptive_bench.errors import AdaptiveBenchError
from adaptive_bench.runs import plan, run, training_work

Change = dict[str, Any] | None
# What is made anew: trainings and what hangs on them, all of them or those of one method; or sweeps alone.
EDITED, OF_FILE = {"dense on edited", "mine on edited"}, {"dense on of_file", "mine on of_file"}
SWEEPS = EDITED | OF_FILE
ALL = SWEEPS | {"dense", "mine"}
MINE = {"mine", "mine on edited", "mine on of_file"}
EDITS: dict[str, tuple[Callable[[World], Change], set[str], bool]] = {}


def edit(name: str, anew: set[str], *, code: bool = False) -> Callable[[Any], Any]:
    """An edit gets the world and gives what the config of the second run differs in.

    Args:
        anew: What is made anew.
        code: It is read by a process that starts afterwards.
    """

    def put(make: Callable[[World], Change]) -> Callable[[World], Change]:
        assert name not in EDITS
        EDITS[name] = make, anew, code
        return make

    return put


def replaced(name: str, anew: set[str], file: str, old: str, new: str, *, code: bool = False, **how: Any) -> None:
    """An edit that puts a text in place of another one."""
    edit(name, anew, code=code)(lambda world: world.change(file, old, new, **how))


def of_json(file: str, change: Callable[[Any], None]) -> Callable[[World], None]:
    def make(world: World) -> None:
        values = json.loads((world.folder / file).read_text())
        change(values)
        (world.folder / file).write_text(json.dumps(values))

    return make


def swap_tokens(values: dict[str, Any]) -> None:
    vocabulary = values["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]


edit("tokenizer: vocabulary", ALL)(of_json("model/tokenizer.json", swap_tokens))
edit("chat template beside the tokenizer", ALL)(
    lambda world: (world.folder / "model/chat_template.jinja").write_text("{{ messages[0]['content'] }}") and None
)
edit("model config: rope_theta", ALL)(
    of_json(
        "model/config.json",
        lambda values: values.update(rope_theta=17.0, rope_parameters={"rope_type": "default", "rope_theta": 17.0}),
    )
)


edit("weights: size and time kept", ALL)(other_weights)


replaced("method: a constant", MINE, "mine.py", "SALT = 3", "SALT = 4", code=True)
replaced("method: helper module", MINE, "edited_method_helper.py", "1.0", "0.5", code=True)
replaced("method: file of numbers beside it", MINE, "factor.json", "1.0", "0.5", code=True)
replaced("method: base class in another plugin", MINE, "parent.py", "salt = 0", "salt = 9", code=True)


replaced("documents: a question", EDITED, "task/data.jsonl", "xx", "vw")
replaced("documents: the same size and time", EDITED, "task/data.jsonl", '"gold": 1', '"gold": 0', keep_time=True)
replaced("documents: worked examples", EDITED, "task/shots.jsonl", "Item 20", "Thing 20")
replaced(
    "documents of a file the YAML names: size and time kept",
    OF_FILE,
    "shared/rows.jsonl",
    "Item 7",
    "Atom 7",
    keep_time=True,
)
replaced("template", EDITED, "task/edited.yaml", "Which letter?", "Say a or b:")
replaced(
    "number of worked examples in the plugin", SWEEPS, "task_plugin.py", "num_fewshot=1", "num_fewshot=0", code=True
)
replaced(
    "metric in an included YAML elsewhere",
    EDITED,
    "shared/metric.yaml",
    "metric: acc",
    "metric: acc_norm",
)
replaced("code of the documents", EDITED, "task/docs.py", "row |", "row | {'more': 1} |", code=True)
replaced(
    "helper of the documents' code",
    EDITED,
    "task/edited_task_helper.py",
    "return text",
    "return text.upper()",
    code=True,
)
replaced("code that processes documents", OF_FILE, "file_task/process.py", "File: ", "Text: ", code=True)
replaced("training text: size and time kept", ALL, "task/train.jsonl", "Item 1:", "Atom 1:", keep_time=True)
replaced("calibration text", SWEEPS, "task/calibration.jsonl", "Item 9:", "Thing 9:")


@edit("local data: a row", {"dense on edited"})
def _(world: World) -> Change:
    world.change("data/extra/rows.jsonl", "Item 30", "Thing 30")
    return world.local


@edit("local data: file renamed", {"dense on edited"})
def _(world: World) -> Change:
    (world.folder / "data/extra/rows.jsonl").rename(world.folder / "data/extra/other.jsonl")
    return world.local


def names(world: World, **changes: Any) -> dict[str, str]:
    """The records of a plan: what each is of, and its name."""
    planned = plan(world.config(**changes))
    home = planned.config.out / "records"
    trained = {training.spec.name: training.folder for training in planned.trainings}
    swept = {f"{sweep.spec.name} on {sweep.task}": sweep.folder for sweep in planned.sweeps}
    return {what: str(folder.relative_to(home)) for what, folder in (trained | swept).items()}


@pytest.mark.parametrize("name", EDITS)
def test_what_an_edit_can_change_is_made_anew_and_nothing_else(world: World, name: str) -> None:
    make, anew, code = EDITS[name]
    world.restore()
    kept = world.local if name.startswith("local data") else {}
    before = names(world, **kept)
    changes = make(world) or {}
    if code:
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
        (lambda world: world.change("task/data.jsonl", '"gold": 0', '"gold": 1'), "its files"),
        (other_weights, "planned with"),
        (lambda world: world.change("task/train.jsonl", "Item 1:", "Thing 1:"), "planned with"),
    ],
    ids=["documents", "weights", "training text"],
)
def test_what_changes_while_a_run_goes_on_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, make: Callable[[World], Any], told: str
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
