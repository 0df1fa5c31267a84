"""Edits of results between two runs, or of what they rest on while a run is under way, one at a time. After each the
table is as it was or that of a fresh output folder, or the command is refused, or a warning is given (`pytest -rP`
prints which).
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from edited_world import Change, Edits, World, other_weights
from safetensors.torch import load_file, save_file

from adaptive_bench.errors import AdaptiveBenchError
from adaptive_bench.runs.outcome.naming import run_folder
from adaptive_bench.runs.work import training as training_work
from adaptive_bench.store.atomic import write_sealed
from adaptive_bench.store.results import read_table

pytestmark = pytest.mark.slow
EDITS = Edits()
edit = EDITS.edit


def change_file(folder: Path, name: str, change: Callable[[dict[str, Any]], None], *, seal: bool) -> None:
    values = json.loads((folder / name).read_text())
    change(values)
    values.pop("content_sha256", None)
    write_sealed(folder / name, values) if seal else (folder / name).write_text(json.dumps(values))


def halve(values: dict[str, Any]) -> None:
    values["scores"] = {metric: 0.5 * score + 0.01 for metric, score in values["scores"].items()}


def of_record(
    name: str, file: str, change: Callable[[Any], Any], expected: str, seal: bool, *, training: bool = False
) -> None:
    @edit(f"record: {name}, {'sealed again' if seal else 'seal broken'}", "record", expected)
    def _(world: World) -> None:
        change_file(world.trainings["mine"] if training else world.sweep(), file, change, seal=seal)


of_record("score", "0.json", halve, "right", False)
of_record("end of the dial", "dial.json", lambda values: values.update(max_saved_tokens=0.1), "right", False)
of_record(
    "end of the dial", "dial.json", lambda values: values.update(max_saved_tokens=0.1), r"refused: .*dial\.json", True
)
of_record("calibration", "behaviour.json", lambda values: values.update(sha256="0"), r"noted: .*behaviour\.json", False)
of_record(
    "what it says of itself",
    "config.json",
    lambda values: values.update(method="dense"),
    r"noted: .*config\.json",
    False,
)
of_record(
    "what it says of itself",
    "config.json",
    lambda values: values.update(method="dense"),
    r"refused: .*config\.json",
    True,
)
of_record(
    "learning rate of a training",
    "config.json",
    lambda values: values["recipe"].update(learning_rate=1.0),
    r"refused: .*config\.json",
    True,
    training=True,
)
of_record("cost", "cost.json", lambda values: values.update(flops=1.0), r"noted: .*cost\.json", False, training=True)
of_record("versions", "env.json", lambda values: values.update(torch="1.0"), "noted: .*same versions", True)
of_record("versions", "env.json", lambda values: values.update(torch="1.0"), r"noted: .*env\.json", False)


@edit("record: documents' answers edited", "record", r"refused: .*samples")
def _(world: World) -> None:
    file = world.sweep() / "0.samples.jsonl"
    file.write_text(file.read_text().replace('"doc": 0', '"doc": 9', 1))


@edit("record: documents' answers deleted", "record", "refused: .*documents")
def _(world: World) -> None:
    (world.sweep() / "0.samples.jsonl").unlink()


@edit("record: point deleted", "record")
def _(world: World) -> None:
    (world.sweep() / "0.json").unlink()


@edit("record: said to be done, half its points gone", "record")
def _(world: World) -> None:
    for name in ("0.3.json", "0.3.samples.jsonl"):
        (world.sweep() / name).unlink()


@edit("record: point of another sweep", "record", "refused: .*another|refused: .*belongs to one record")
def _(world: World) -> None:
    for name in ("0.json", "0.samples.jsonl"):
        shutil.copy(world.sweep("dense", "of_file") / name, world.sweep() / name)


@edit("record: sweep of another method", "record", r"refused: .*config\.json")
def _(world: World) -> None:
    target = world.sweep()
    shutil.rmtree(target)
    shutil.copytree(world.sweep("dense"), target)


@edit("record: training under another key", "record", r"refused: .*config\.json")
def _(world: World) -> None:
    dense, mine = world.trainings["dense"], world.trainings["mine"]
    shutil.rmtree(mine)
    dense.rename(mine)


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
of_run("manifest.json", '"mine"', '"dense"')


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


def test_a_table_that_was_edited_is_not_read(world: World) -> None:
    EDITS["run: table.json"][0](world)
    folder = run_folder(world.config())
    with pytest.raises(AdaptiveBenchError, match="changed since"):
        read_table(folder / "table.json")
