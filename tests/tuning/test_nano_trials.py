"""The preset of the nano board against the record of the trials that chose its parameters."""

import json
from pathlib import Path

from adaptive_bench.config import load_config

ROOT = Path(__file__).parents[2]


def test_the_nano_board_has_what_equal_trials_chose():
    """`gated` is no method to choose for: it takes the values of its GateSkip."""
    record = json.loads((ROOT / "docs/records/nano_trials.json").read_text(encoding="utf-8"))
    tried = [trial for trial in record["trials"] if trial["method"] != "gated"]
    best = {}
    for trial in sorted(tried, key=lambda trial: trial["value"], reverse=True):
        if trial["state"] == "complete":
            best.setdefault(trial["method"], trial["spec"])
    assert len({sum(trial["method"] == method for trial in tried) for method in best}) == 1
    assert set(best.values()) <= set(load_config("nano_all").methods)
    assert {name: spec for name, spec in record["best"].items() if name != "gated"} == best
