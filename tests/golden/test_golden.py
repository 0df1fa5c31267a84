"""A number that moves takes a version with it: records of the version before would be taken for records of this one."""

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from adaptive_bench.store.keys import FLOORS, TABLES

sys.path.insert(0, str(Path(__file__).parent))  # the parts of `outputs`, which is a script of its own
outputs = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("outputs.py"))))
GOLDEN = json.loads(outputs.FILE.read_text(encoding="utf-8"))
# By what the name of a group begins with the version that its outputs have.
VERSIONS = {
    "training": "FLOORS['training'], or that of the floor it is from,",
    "encoding": "FLOORS['training']",
    "pricing": "FLOORS['training'], or that of the floor or VERSION of the method it is from,",
    "definitions of tasks": "FLOORS['tasks']",
    "answers": "FLOORS['tasks']",
    "texts": "FLOORS['evaluation'], or that of the floor it is from,",
    "sweeps": "TABLES",  # points stay what they are, others of them are asked for
    "tables": "TABLES",
    "family": "FLOORS['backbone'], or that of the floor above it it is from,",
    "shuffled": "FLOORS['engine'] or FLOORS['model']",
    "task": "FLOORS['tasks'], or FLOORS['evaluation'] where only its answers moved,",
}
AGAIN = "then give `python tests/golden/outputs.py`"


@pytest.mark.parametrize("spec", outputs.specs(), ids=str)
def test_outputs_of_methods(spec, tmp_path):
    known = GOLDEN["methods"].get(str(spec))
    assert known is not None, f"{spec} is new: give `python tests/golden/outputs.py`."
    known = dict(known)
    assert known.pop("versions") == outputs.versions(spec), f"The version of {spec} was raised: {AGAIN}."
    first = known.pop("first_text")
    places = outputs.moved(known, outputs.of_method(spec, tmp_path / "model", first))
    assert not places, f"{spec} moved in {places}: raise VERSION in its file, or that of a floor below it, {AGAIN}."


def test_every_spec_is_still_there():
    assert set(GOLDEN["methods"]) == {str(spec) for spec in outputs.specs()}
    assert GOLDEN["floors"] == FLOORS, f"A floor's version was raised: {AGAIN}."
    assert GOLDEN["rules of tables"] == TABLES, f"The version of tables was raised: {AGAIN}."


@pytest.mark.parametrize("group", outputs.groups())
def test_outputs_of_groups(group, tmp_path):
    (raised,) = (version for name, version in VERSIONS.items() if group == name or group.startswith(f"{name} "))
    values = outputs.groups()[group](tmp_path)
    places = outputs.moved(GOLDEN.get(group), json.loads(json.dumps(values)))
    assert not places, f"{group} moved in {places}: raise {raised} in adaptive_bench/store/keys.py, {AGAIN}."


def test_outputs_of_tasks():
    places = outputs.moved(GOLDEN["tasks"], outputs.of_tasks())
    assert not places, f"Tasks moved in {places}: raise FLOORS['tasks'] in adaptive_bench/store/keys.py, {AGAIN}."


def test_outputs_of_an_evaluation(tmp_path):
    places = outputs.moved(GOLDEN["evaluation"], outputs.of_evaluation(tmp_path))
    assert not places, f"An evaluation moved in {places}: raise FLOORS['evaluation'] or the floor it is from, {AGAIN}."
