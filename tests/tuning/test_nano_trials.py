"""The preset of the nano board against the record of the trials that chose its parameters."""

import re
from collections import Counter
from pathlib import Path

import pytest

from adaptive_bench.config import load_config
from adaptive_bench.tuning.result import StudyResult

DOCS = Path(__file__).parents[2] / "docs"
RECORD = StudyResult.read(DOCS / "records/nano_trials.json")
PROTOCOL = (DOCS / "protocol.md").read_text(encoding="utf-8")


def test_the_nano_board_has_what_equal_trials_chose_and_other_seeds_confirmed():
    assert len(set(Counter(trial.method for trial in RECORD.trials).values())) == 1
    assert {trial.spec for trial in RECORD.best.values()} <= set(load_config("nano_all").methods)


def test_the_seeds_that_confirmed_are_not_on_the_board():
    assert not {*RECORD.definition["confirm"]} & {*load_config("nano_all").seeds}
    assert {trial.state for trial in RECORD.confirmed} == {"complete"}


def test_the_protocol_shows_the_record():
    shown = re.findall(r"^\| (\w+) \|((?: [0-9.]+ \|){3}) [^|]+\|(.*)\|$", PROTOCOL, re.MULTILINE)
    assert {name for name, *_ in shown} == set(RECORD.best)
    for name, searched, confirmed in shown:
        values = [one.value for one in RECORD.trials if (one.method, one.state) == (name, "complete")]
        assert [float(text) for text in searched.split("|")[:3]] == pytest.approx(
            [values[0], max(values), min(values)], abs=5e-4
        )
        again = [one for one in RECORD.confirmed if one.method == name]
        texts = [f"{one.value:.3f}" for one in again]
        best = RECORD.best[name]
        expected = [f"**{text}**" if one == best else text for one, text in zip(again, texts, strict=True)]
        assert [text.strip() for text in confirmed.split("|")] == (expected or ["", ""])
