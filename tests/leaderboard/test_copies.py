"""Entries with another's points: refused by name, whatever they are called and whoever signs them."""

import json
import re
import shutil
from datetime import UTC, datetime, timedelta

import pytest
from forged_entries import about, archive, both, config, listed, measured_two, of_run, read, removed, reseal

from adaptive_bench.leaderboard.frame import read_board

pytestmark = pytest.mark.slow


def later(entry, other):
    """Submitted after every entry of this session: half an hour from now, and so far clocks may be apart."""
    # Asked when it is needed: in a long session the entries are made long after this module was read.
    about(submitted=(datetime.now(UTC) + timedelta(minutes=30)).isoformat())(entry, other)


def another_model(entry, other):
    both(removed("table.json"), removed("answers.json"), config(model="llama"), of_run(model="llama"))(entry, other)


def one_seed(entry, other):
    """Of two seeds the second alone, with all that goes with it."""
    of_first = set()

    def second(members, _):
        for name, content in members:
            if re.fullmatch(r"\w+/config\.json", name) and json.loads(content)["seed"] == 1:
                of_first.add(name.partition("/")[0])
        return [one for one in members if one[0].partition("/")[0] not in of_first]

    archive(second)(entry, other)
    kept = [one for one in read(entry, "run.json")["records"] if one not in of_first]
    assert of_first and kept
    both(*map(removed, ("table.json", "answers.json")))(entry, other)

    def without_first(values):
        for key in ("trainings", "evaluations"):
            values[key] = [one for one in values[key] if one["record"].partition("/")[0] not in of_first]
        values["seals"] = {
            name: text for name, text in values["seals"].items() if name.partition("/")[0] not in of_first
        }

    listed(without_first)(entry, other)
    both(of_run(seeds=[2], records=kept), config(seeds=[2]))(entry, other)


COPIES = {
    "as it is": lambda entry, other: None,
    "of other authors": about(about={"authors": ["B. Name"], "licence": "MIT"}),
    "of another model": another_model,
    "of one seed": one_seed,
}


def board_of(*entries):
    return read_board([entry / "table.json" for entry in entries])


@pytest.mark.parametrize("forge", COPIES.values(), ids=COPIES)
def test_a_copy_is_refused_and_what_was_copied_stays(entries, tmp_path, forge):
    own, other = entries
    copy = shutil.copytree(own, tmp_path / "a_copy")
    later(copy, other)
    forge(copy, other)
    reseal(copy)
    alone = board_of(copy)
    assert alone.rows and not alone.refused  # its records make its values: nothing else is wrong with it
    first = shutil.copytree(own, tmp_path / "z_first")
    board = board_of(copy, first)
    (said,) = board.refused
    assert re.search(r"^a_copy is left out: all its \d+ points are those of the entry z_first, ", said)
    # Who ran it again has found that the first can be reproduced, and is told how to say so.
    assert f"adaptive-bench leaderboard verify {first} --record" in said
    assert board.folders == [first]


def test_a_part_of_an_entry_is_refused_though_it_says_it_was_first(entries, tmp_path):
    own, other = entries
    part, whole = (shutil.copytree(own, tmp_path / name) for name in ("part", "whole"))
    later(whole, other)
    one_seed(part, other)
    for entry in (part, whole):
        reseal(entry)
    assert board_of(part, whole).folders == [whole]


def test_entries_of_other_seeds_stay(entries):
    board = board_of(*entries)
    assert not board.refused and len(board.folders) == 2


def test_what_was_measured_again_stays_before_what_says_it_was_first(entries, tmp_path):
    own, other = entries
    original, copy = (shutil.copytree(own, tmp_path / name) for name in ("original", "copy"))
    later(original, other)
    measured_two("holds")(original, other)
    assert board_of(copy, original).folders == [original]
