"""Edits of documents, training text and their code between two runs, one at a time. After each the table is that of a
fresh output folder, or the command is refused, or a warning is given, and it is said which (`pytest -rP` prints it).
"""

from __future__ import annotations

import re

import pytest
from edited_world import Change, Edits, World, rows_of

pytestmark = pytest.mark.slow
EDITS = Edits()
edit, replaced = EDITS.edit, EDITS.replaced


replaced("documents: a question", "task/data.jsonl", "xx", "vw")
replaced("documents: a right answer", "task/data.jsonl", '"gold": 0', '"gold": 1')
replaced("documents: the same size and time", "task/data.jsonl", '"gold": 1', '"gold": 0', keep_time=True)
replaced("documents: worked examples", "task/shots.jsonl", "Item 20", "Thing 20")
replaced("documents of a file the YAML names", "shared/rows.jsonl", '"gold": 1', '"gold": 0')
replaced(
    "documents of a file the YAML names: size and time kept", "shared/rows.jsonl", "Item 7", "Atom 7", keep_time=True
)
edit("documents: another order")(
    lambda world: world.write(
        "task/data.jsonl", "".join(reversed((world.folder / "task/data.jsonl").read_text().splitlines(keepends=True)))
    )
)
edit("documents: one more")(lambda world: world.write("task/data.jsonl", rows_of(7)))
replaced("template", "task/edited.yaml", "Which letter?", "Say a or b:")
replaced("version in the YAML", "task/edited.yaml", "version: 1", "version: 2")
replaced("number of worked examples in the plugin", "task_plugin.py", "num_fewshot=1", "num_fewshot=0", "code")
replaced(
    "metric in an included YAML elsewhere",
    "shared/metric.yaml",
    "metric: acc",
    "metric: acc_norm",
    expected="refused: .*acc,none|right",
)
replaced("second split in the YAML", "task/edited.yaml", "test_split: test", "test_split: shots")
replaced("code of the documents", "task/docs.py", "row |", "row | {'more': 1} |", "code")
replaced("helper of the documents' code", "task/edited_task_helper.py", "return text", "return text.upper()", "code")
replaced(
    "helper of the documents' code, process goes on",
    "task/edited_task_helper.py",
    "return text",
    "return text.upper()",
    expected="refused: .*edited_task_helper",
)
replaced("code that processes documents", "file_task/process.py", "File: ", "Text: ", "code")
replaced("training text", "task/train.jsonl", "Item 1:", "Thing 1:")
replaced("training text: size and time kept", "task/train.jsonl", "Item 1:", "Atom 1:", keep_time=True)
replaced("calibration text", "task/calibration.jsonl", "Item 9:", "Thing 9:")


@edit("local data: a row")
def _(world: World) -> Change:
    world.change("data/extra/rows.jsonl", "Item 30", "Thing 30")
    return world.local


@edit("local data: size and time kept")
def _(world: World) -> Change:
    world.change("data/extra/rows.jsonl", '"gold": 0', '"gold": 1', keep_time=True)
    return world.local


@edit("local data: file renamed")
def _(world: World) -> Change:
    (world.folder / "data/extra/rows.jsonl").rename(world.folder / "data/extra/other.jsonl")
    return world.local


@edit("local data: folder inside renamed")
def _(world: World) -> Change:
    (world.folder / "data/extra").rename(world.folder / "data/extra2")
    return world.local


@pytest.mark.parametrize("name", list(EDITS))
def test_an_edit_is_right_or_noticed(world: World, name: str) -> None:
    told = EDITS.outcome(world, name)
    print(f"{name}: {told}")
    assert re.match(EDITS[name][2], told, re.DOTALL)
