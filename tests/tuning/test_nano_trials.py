"""The preset of the nano board against the record of the trials that chose its parameters."""

import re
from collections import Counter
from pathlib import Path

import pytest

from adaptive_bench.config import load_config
from adaptive_bench.tuning.result import StudyResult

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("nano_trials", "nano_trials_later", "nano_trials_rerated")
RECORDS = [StudyResult.read(DOCS / f"records/{name}.json") for name in NAMES]
RECORD_OF = {name: record for record in RECORDS for name in record.best}  # of methods tried again the later one
PAGE = (DOCS / "tuning.md").read_text(encoding="utf-8")


def test_the_nano_board_has_what_equal_trials_chose_and_other_seeds_confirmed():
    for record in RECORDS:
        assert {*Counter(trial.method for trial in record.trials if trial.state != "refused").values()} == {5}
    assert {record.best[name].spec for name, record in RECORD_OF.items()} <= {*load_config("nano_all").methods}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_the_seeds_that_confirmed_are_not_on_the_board(record):
    assert not {*record.definition["confirm"]} & {*load_config("nano_all").seeds}
    assert {trial.state for trial in record.confirmed} == {"complete"}


def test_the_page_shows_the_record():
    shown = re.findall(r"^\| (\w+) \|((?: [0-9.]+ \|){2}) [^|]+\|(.*)\|$", PAGE, re.MULTILINE)
    assert {name for name, *_ in shown} == {"gateskip", "mod"}
    for name, searched, confirmed in shown:
        record = RECORDS[0]
        values = [one.value for one in record.trials if (one.method, one.state) == (name, "complete")]
        assert [float(text) for text in searched.split("|")[:2]] == pytest.approx([values[0], max(values)], abs=5e-4)
        again = [one for one in record.confirmed if one.method == name]
        texts = [f"{one.value:.3f}" for one in again]
        expected = [f"**{text}**" if one == record.best[name] else text for one, text in zip(again, texts, strict=True)]
        assert [text.strip() for text in confirmed.split("|")] == expected
