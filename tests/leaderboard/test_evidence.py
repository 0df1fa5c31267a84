"""What stands behind the rows of an entry: its author's word, its records, or that they were measured again."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from forged_entries import measured_two, point, read, reseal, verified

from adaptive_bench import source
from adaptive_bench.leaderboard import derived, evidence, provenance
from adaptive_bench.leaderboard import verified as verified_now
from adaptive_bench.leaderboard.evidence import (
    REDERIVED,
    REPRODUCED,
    REPRODUCED_EARLIER,
    REPRODUCED_NOW,
    SELF_REPORTED,
    UNSCORED,
)
from adaptive_bench.leaderboard.frame import read_board
from adaptive_bench.leaderboard.page import render
from adaptive_bench.leaderboard.provenance import OTHER_CODE, measured_earlier, method_facts_of
from adaptive_bench.leaderboard.rows import Rejected
from adaptive_bench.source import code_of

pytestmark = pytest.mark.slow


def test_states_say_what_stands_behind_a_row(entries, tmp_path):
    own, _ = entries
    (state,) = states(own)
    assert state == (REDERIVED, True, None)
    bare = shutil.copytree(own, tmp_path / "bare")
    (bare / "records.tar.xz").unlink()
    reseal(bare)
    assert states(bare) == {(SELF_REPORTED, True, None)}
    again = shutil.copytree(own, tmp_path / "again")
    verified(points=1, hold=1, trained=1, documents=3, equal=3, measured=[point()])(again, None)
    board = read_board([again / "table.json"])
    found = {line["method"]: line["evidence"] for line in board.lines}
    assert found == {"dense": REPRODUCED, "random_skip": REDERIVED}
    (evidence,) = board.evidence.values()
    assert evidence.again.trained == 1 and "1 of its 2 points was measured again: it holds" in evidence.said()


def test_rows_of_a_task_that_was_not_scored_again_say_so(entries):
    (known,) = read_board([entries[0] / "table.json"]).evidence.values()
    row = known.rows[0]
    found = replace(known, unscored={row["task"]: "its documents are not here"})
    assert (known.of_row(row)["evidence"], found.of_row(row)["evidence"]) == (REDERIVED, UNSCORED)
    assert "answers to nano_qa_ll were not scored again, as its documents are not here" in found.said()


def test_what_is_kept_of_an_entry_is_made_again_with_other_data(entries, tmp_path, monkeypatch):
    before = derived._place(entries[0])
    monkeypatch.setenv("ADAPTIVE_BENCH_DATA", str(tmp_path))
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k/test.jsonl").write_text("{}")
    there = derived._place(entries[0])
    (tmp_path / "gsm8k/test.jsonl").write_text("{} ")
    assert len({before, there, derived._place(entries[0])}) == 3


def test_what_verify_records_has_a_point_for_each_saving_a_method_was_trained_towards(entries, tmp_path):
    """As `verify` measures them: one of each sweep of the entry's first seed."""
    entry = shutil.copytree(entries[0], tmp_path / "entry")
    rows, answers = read(entry, "table.json"), read(entry, "answers.json")
    of_first = [sweep for sweep in answers["sweeps"] if sweep["seed"] == 1]
    answers = {"sweeps": [sweep | {"target": target} for sweep in of_first for target in (0.1, 0.2)]}
    places = ("method", "semantics", "task")
    measured = [point(**{key: sweep[key] for key in places}) for sweep in answers["sweeps"]]
    verified_now.recorder(entry)(measured)
    assert verified_now.of_entry(entry, answers, rows).points == 2 * len(of_first)
    verified_now.recorder(entry)([*measured, measured[0]])
    with pytest.raises(Rejected, match=f"points {2 * len(of_first) + 1}, in the entry {2 * len(of_first)}"):
        verified_now.of_entry(entry, answers, rows)


@pytest.mark.parametrize(("verdict", "state"), [("holds", REPRODUCED), ("differs", REDERIVED)])
def test_a_row_is_reproduced_where_no_point_of_it_differs(entries, tmp_path, verdict, state):
    entry = shutil.copytree(entries[0], tmp_path / "entry")
    measured_two(verdict)(entry, None)
    found = {line["method"]: line["evidence"] for line in read_board([entry / "table.json"]).lines}
    assert found["dense"] == state


def test_a_method_of_several_savings_agrees_where_no_point_of_it_differs():
    measured = [point(), point(task="nano_math"), point(verdict="differs")]
    agreeing = verified_now._agreeing(measured, 3, 2, 0, {"documents", "equal"})
    assert set(agreeing) == {("dense", "nano_math")}


@pytest.mark.parametrize(
    ("by", "state"), [(None, REPRODUCED_EARLIER), ("1" * 16, REPRODUCED_EARLIER), ("2" * 16, REPRODUCED_NOW)]
)
def test_what_earlier_code_measured_again_is_not_called_reproduced(entries, tmp_path, monkeypatch, by, state):
    """The code of `dense` changed since its row was measured, and `by` is the one that measured it again."""
    monkeypatch.setattr(evidence, "code_of", lambda method: "2" * 16 if method == "dense" else code_of(method))
    monkeypatch.setattr(provenance, "code_of", evidence.code_of)
    entry = shutil.copytree(entries[0], tmp_path / "again")
    verified(measured=[point(code=by), point(method="random_skip", code="1" * 16)])(entry, None)
    board = read_board([entry / "table.json"])
    found = {line["method"]: line["evidence"] for line in board.lines}
    assert found == {"dense": state, "random_skip": REPRODUCED}
    (one,) = board.evidence.values()
    assert ("since then the code of 1 of its 2 methods has changed" in one.said()) is (state == REPRODUCED_EARLIER)
    page = render(board, "net")
    assert f"verified {read(entry, 'verified.json')['verified'][:10]}" in page and (
        ", in part by earlier code" in page
    ) is (state == REPRODUCED_EARLIER)
    old = [method for method in method_facts_of([entry]).items() if method[1]["code"] == OTHER_CODE]
    assert [name for name, _ in old] == ["dense"]


def states(entry):
    board = read_board([entry / "table.json"])
    assert not board.refused
    return {(line["evidence"], line["checked"], line["external"]) for line in board.lines}


def test_a_method_whose_plugin_is_not_here_stays_unchecked_and_is_not_called_old(entries, tmp_path, monkeypatch):
    from adaptive_bench import registry

    entry = shutil.copytree(entries[0], tmp_path / "entry")
    names = registry.names
    monkeypatch.setattr(registry, "names", lambda group: [name for name in names(group) if name != "random_skip"])
    board = read_board([entry / "table.json"])
    by_method = {line["method"]: line for line in board.lines}
    assert by_method["random_skip"]["evidence"] == REDERIVED
    assert by_method["random_skip"]["external"].endswith("not here") and by_method["dense"]["external"] is None
    assert method_facts_of([entry])["random_skip"]["code"] != OTHER_CODE


def test_rows_of_an_earlier_version_of_their_method_are_named(monkeypatch):
    """As if the version of MoD were raised today: the published board names its rows, and no other."""
    entry = Path(__file__).parents[2] / "leaderboard/entries/real-text-3M"
    version = source._version
    known = measured_earlier([entry])
    monkeypatch.setattr(source, "_version", lambda file: 99 if file.stem == "mod" else version(file))
    said = measured_earlier([entry])
    assert "`mod`" in said and "`mod`" not in known
    monkeypatch.setattr(source, "_version", lambda file: 99)
    assert measured_earlier([entry]).endswith("of what executes it: every method.")
