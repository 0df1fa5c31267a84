"""A manifest names what lies below its folder of records, and nothing beside it."""

from pathlib import Path

import pytest

from adaptive_bench.store.manifest import from_json

GOOD = "0123456789abcdef"


def manifest(record=GOOD, evaluated=f"{GOOD}/eval/nano_qa-0123", seals=None):
    training = {"record": record, "method": "dense", "seed": 1, "target": None, "only_target": True, "base": None}
    evaluation = {"record": evaluated, "method": "dense", "task": "nano_qa", "split": "test", "metric": "m"}
    return {"trainings": [training], "evaluations": [evaluation | {"levels": [0.1]}], "seals": seals or {}}


def test_names_below_are_taken():
    assert from_json(manifest(), Path("runs")).records == [GOOD, f"{GOOD}/eval/nano_qa-0123"]


@pytest.mark.parametrize("name", ["../../..", "/etc", f"{GOOD}/../..", "", ".", f"{GOOD}//eval"])
def test_others_are_refused(name):
    for about in (manifest(record=name), manifest(evaluated=name), manifest(seals={name: ""})):
        with pytest.raises(LookupError, match="not the name of anything below the folder of records"):
            from_json(about, Path("runs"))
