"""Edits of results between two runs, or of what they rest on while a run is under way, one at a time. After each the
table is as it was or that of a fresh output folder, or the command is refused, or a warning is given (`pytest -rP`
prints which).
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from edited_world import Change, Edits, World, other_weights
from finished_run import change
from safetensors.torch import load_file, save_file

from adaptive_bench.runs.outcome.naming import run_folder
from adaptive_bench.runs.work import training as training_work

pytestmark = pytest.mark.slow
EDITS = Edits()
edit = EDITS.edit


@edit("record: versions", "record", "noted: .*same versions")
def _(world: World) -> None:
    change(world.sweep(), "env", torch="1.0")


@edit("record: cut off in the middle", "record")
def _(world: World) -> None:
    file = world.sweep() / "record.json"
    file.write_bytes(file.read_bytes()[:2000])


@edit("record: documents gone", "record")
def _(world: World) -> None:
    (world.sweep() / "documents.jsonl").unlink()


@edit("record: weights of a finished training, one more task asked", "record", "refused: .*changed or is missing")
def _(world: World) -> Change:
    file = world.trainings["mine"] / "checkpoint/backbone/model.safetensors"
    save_file({name: -value for name, value in load_file(file).items()}, file, {"format": "pt"})
    return {"evaluation": {"limit": 2}}


@edit("record: log of a training", "record")
def _(world: World) -> None:
    file = world.trainings["mine"] / "train.jsonl"
    file.write_text(file.read_text().replace('"loss": ', '"loss": 9'))


def of_run(name: str, old: str, new: str) -> None:
    @edit(f"run: {name}", "record")
    def _(world: World) -> None:
        folder = run_folder(world.config())
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))


of_run("table.json", '"score": ', '"score": 9')
of_run("answers.json", "1", "2")
of_run("methods.json", "mine", "other")
of_run("run.json", '"state": "done"', '"state": "partial"')


@edit("versions of a library, one more method", "code", "noted: .*same versions")
def _(world: World) -> Change:
    world.work_in_this_process()
    original = importlib.metadata.version
    changed = lambda name: "1.0" if name == "transformers" else original(name)  # noqa: E731
    world.patch.setattr("adaptive_bench.model.timing.hardware.version", changed)
    return {"methods": "dense,mine,static_depth"}


@edit("threads, one more method")
def _(world: World) -> Change:
    world.patch.setattr(torch, "get_num_threads", lambda: 7)
    # What puts settings back after a plugin would else give this process seven, and the tests after it as well.
    world.patch.setattr(torch, "set_num_threads", lambda threads: None)
    return {"methods": "dense,mine,static_depth"}


@edit("name of the device, one more method", expected="noted: .*same versions")
def _(world: World) -> Change:
    world.work_in_this_process()
    world.patch.setattr("adaptive_bench.model.timing.hardware.describe_device", lambda name: "another")
    return {"methods": "dense,mine,static_depth"}


def while_running(name: str, make: Callable[[World], Any], expected: str) -> None:
    @edit(f"while it runs: {name}", "code", expected)
    def _(world: World) -> Change:
        train, done = training_work.train, []

        def then(*arguments: Any, **options: Any) -> Any:
            found = train(*arguments, **options)
            if not done:
                done.append(make(world))
            return found

        world.work_in_this_process()
        world.patch.setattr(training_work, "train", then)
        return {"seeds": (3,), "methods": ("dense", "gateskip")}


while_running(
    "documents", lambda world: world.change("task/data.jsonl", '"gold": 0', '"gold": 1'), "refused: .*its files"
)
while_running("weights", other_weights, "refused: .*planned with")
while_running(
    "training text", lambda world: world.change("task/train.jsonl", "Item 1:", "Thing 1:"), "refused: .*planned with"
)
while_running(
    "helper of the documents' code",
    lambda world: world.change("task/edited_task_helper.py", "return text", "return text.upper()"),
    "refused: .*edited_task_helper",
)


@pytest.mark.parametrize("name", list(EDITS))
def test_an_edit_is_right_or_noticed(world: World, name: str) -> None:
    told = EDITS.outcome(world, name)
    print(f"{name}: {told}")
    assert re.match(EDITS[name][2], told, re.DOTALL)
