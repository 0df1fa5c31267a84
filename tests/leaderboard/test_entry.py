"""Entries: submitted, read back in every version, refused where they were changed."""

import json
import shutil
from pathlib import Path

import pytest
from forged_entries import point

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.leaderboard.entry import _MIGRATIONS, LARGEST_BYTES, LARGEST_DERIVED_BYTES, SCHEMA, check_size
from adaptive_bench.leaderboard.evidence import _completed
from adaptive_bench.leaderboard.frame import read_board
from adaptive_bench.leaderboard.provenance import runs_of
from adaptive_bench.leaderboard.rows import Rejected
from adaptive_bench.leaderboard.submission import claims_of, submit
from adaptive_bench.leaderboard.verified import UNVERIFIED, recorder
from adaptive_bench.source import code_of
from adaptive_bench.store.atomic import write_sealed
from adaptive_bench.store.digest import sealed, unsealed
from adaptive_bench.store.results import read_table, write_run

ABOUT = {"authors": ["A. Name"], "licence": "CC-BY-4.0"}
OLD = Path(__file__).parent / "old_entries"


@pytest.fixture
def run(tmp_path, make_row):
    """A finished run's folder with paths and names of a machine in it."""
    folder = tmp_path / "runs" / "0123456789abcdef"
    record = tmp_path / "records" / "aaaaaaaaaaaaaaaa"
    folder.mkdir(parents=True)
    record.mkdir(parents=True)
    (record / "env.json").write_text(json.dumps({"machine": "secret-host", "torch": "2.13", "device": "cpu"}))
    (folder / "table.json").write_text(json.dumps([make_row(), make_row(method="dense")]))
    (folder / "answers.json").write_text(json.dumps({"schema": 1, "sweeps": []}))
    (folder / "methods.json").write_text(json.dumps({"schema": 1, "methods": {"gateskip": {"causality": "C0"}}}))
    about = {"state": "done", "model": "/home/secret/llama", "records": ["aaaaaaaaaaaaaaaa"], "warnings": ["a\x1bb"]}
    about |= {"methods": ["dense"], "tasks": ["nano_math"], "seeds": [1], "match_on": "net", "match_phase": "all"}
    write_run(folder, about | {"failures": [], "finished": "2026-01-01T00:00:00+00:00", "took_s": 1.0})
    config = "methods: [dense]\nmodel: /home/secret/llama\nout: /home/secret/runs\ndata_dir: /home/secret\n"
    (folder / "config.yaml").write_text(config)
    return folder


def test_a_submitted_run_is_a_board_of_the_same_rows_and_says_nothing_of_the_machine(run, tmp_path):
    entry = submit(run, tmp_path / "entries", about=ABOUT)
    of_entry, of_run = (read_board([folder / "table.json"]).lines for folder in (entry, run))
    assert [line | {"checked": None} for line in of_entry] == of_run
    assert {line["evidence"] for line in of_entry} == {"self-reported"}
    texts = "".join(path.read_text() for path in entry.iterdir())
    assert "secret" not in texts and "\x1b" not in texts
    about = json.loads((entry / "entry.json").read_text())
    assert about["schema"] == SCHEMA and about["environments"] == [{"torch": "2.13", "device": "cpu"}]
    config, answers, _ = claims_of(entry)
    assert config == {"methods": ["dense"], "model": "llama"} and answers == []


def test_records_that_do_not_make_the_table_are_not_submitted(run, tmp_path):
    write_sealed(run.parents[1] / "records" / "aaaaaaaaaaaaaaaa" / "status.json", {"state": "done", "reason": ""})
    with pytest.raises(EnvironmentProblem, match=r"manifest\.json\.xz is missing.*Give the run's command again"):
        submit(run, tmp_path / "entries", with_records=True, about=ABOUT)
    assert not list((tmp_path / "entries").iterdir())


def test_an_entry_says_who_made_it(run, tmp_path):
    paper = {"paper": "https://arxiv.org/abs/2510.13876"}
    entry = submit(run, tmp_path / "entries", about=ABOUT | paper)
    board = read_board([entry / "table.json"])
    (evidence,) = board.evidence.values()
    assert evidence.identity == ABOUT | paper and not board.refused
    about = json.loads((entry / "entry.json").read_text())
    about["about"]["code"] = "javascript:alert(1)"
    (entry / "entry.json").write_text(json.dumps(about))
    assert "code is a link" in read_board([entry / "table.json"]).refused[0]


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({}, "no authors, no licence"),
        (ABOUT | {"licence": ""}, "no licence"),
        (ABOUT | {"authors": "A. Name"}, "list of at most"),
        (ABOUT | {"authors": ["a\x1b[31m"]}, "list of at most"),
        (ABOUT | {"paper": "http://example.org"}, "https"),
        (ABOUT | {"package": "own"}, "name==1.2"),
        (ABOUT | {"licence": "NOSUCH-9.9"}, "SPDX name"),
        (ABOUT | {"licence": "MIT OR"}, "SPDX name"),
        (ABOUT | {"phone": "1"}, "are known"),
    ],
)
def test_who_made_an_entry_is_asked_for(run, tmp_path, about, why):
    with pytest.raises(UsageError, match=why):
        submit(run, tmp_path / "entries", about=about)
    assert not (tmp_path / "entries").exists()


def test_headroom_beside_the_table_goes_along(run, tmp_path):
    (run / "headroom.json").write_text(sealed('{"kind": "headroom", "tasks": []}\n'))
    entry = submit(run, tmp_path / "entries", about=ABOUT)
    assert "headroom.json" in json.loads((entry / "entry.json").read_text())["files"]
    assert not read_board([entry / "table.json"]).problems
    (entry / "headroom.json").write_text(sealed('{"kind": "headroom", "tasks": [3]}\n'))
    assert "digest differs" in read_board([entry / "table.json"]).problems[0]


def first_version(about):
    return json.dumps({key: value for key, value in about.items() if key != "content_sha256"} | {"schema": 1})


@pytest.mark.parametrize("forged", [first_version, lambda about: None, json.dumps])
def test_a_table_that_no_sealed_run_vouches_for_is_no_result(run, tmp_path, make_row, forged):
    (run / "table.json").write_text(json.dumps([make_row(score=0.1)]))
    about = forged(json.loads((run / "run.json").read_text()))
    (run / "run.json").unlink() if about is None else (run / "run.json").write_text(about)
    with pytest.raises(EnvironmentProblem, match=r"run\.json"):
        submit(run, tmp_path / "entries", about=ABOUT)
    assert not (tmp_path / "entries").exists()
    board = read_board([run / "table.json"])
    assert not board.rows and "table.json is left out" in board.problems[0]
    with pytest.raises(EnvironmentProblem, match=r"run\.json"):
        read_table(run / "table.json")


def test_answers_that_were_edited_are_neither_submitted_nor_tested(run, tmp_path):
    (run / "answers.json").write_text('{"sweeps": []}')
    with pytest.raises(EnvironmentProblem, match=r"answers\.json in .* changed since"):
        submit(run, tmp_path / "entries", about=ABOUT)
    board = read_board([run / "table.json"])
    assert board.rows and any("Paired tests" in text and "answers.json" in text for text in board.problems)


def test_an_entry_is_never_overwritten(run, tmp_path):
    submit(run, tmp_path / "entries", about=ABOUT)
    with pytest.raises(UsageError, match="never changed"):
        submit(run, tmp_path / "entries", about=ABOUT)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("run.json", '{"state": "partial"}', "done"),
        ("table.json", "[]", "list of rows"),
        ("table.json", '[{"method": "<b>"}]', "row 0"),
        ("answers.json", '{"sweeps": 3}', "answers.json"),
        ("answers.json", None, "missing"),
        ("answers.json", '{"sweeps": [], "x": "' + "x" * LARGEST_DERIVED_BYTES + '"}', "at most 32 MB"),
    ],
)
def test_what_breaks_a_rule_is_not_submitted(run, tmp_path, name, text, why):
    (run / name).unlink() if text is None else (run / name).write_text(text)
    if name != "run.json":
        write_run(run, unsealed((run / "run.json").read_bytes()))
    with pytest.raises((EnvironmentProblem, UsageError), match=why):
        submit(run, tmp_path / "entries", about=ABOUT)
    assert not (tmp_path / "entries").exists()


def test_an_entry_that_was_changed_afterwards_is_left_out_and_the_board_goes_on(run, tmp_path, make_row):
    entry = submit(run, tmp_path / "entries", about=ABOUT)
    other = tmp_path / "other"
    shutil.copytree(run, other)
    (entry / "table.json").write_text(json.dumps([make_row(score=0.95)]))
    board = read_board([entry / "table.json", other / "table.json"])
    assert len(board.rows) == 2 and any("digest differs" in text for text in board.problems)
    with pytest.raises(EnvironmentProblem, match="digest differs"):
        claims_of(entry)


@pytest.mark.parametrize("schema", [0, SCHEMA + 1, "2", None, True, 1.0])
def test_a_version_that_is_not_known_is_left_out(run, tmp_path, schema):
    entry = submit(run, tmp_path / "entries", about=ABOUT)
    about = json.loads((entry / "entry.json").read_text())
    (entry / "entry.json").write_text(json.dumps(about | {"schema": schema}))
    board = read_board([entry / "table.json"])
    assert not board.rows and "schema 1 to" in board.problems[0]


def test_an_entry_has_a_size():
    check_size(LARGEST_BYTES, LARGEST_DERIVED_BYTES)
    for sizes in ((LARGEST_BYTES + 1, 0), (0, LARGEST_DERIVED_BYTES + 1)):
        with pytest.raises(Rejected, match="an entry has at most"):
            check_size(*sizes)


def test_every_old_version_has_a_migration_and_a_stored_entry():
    assert sorted(_MIGRATIONS) == list(range(1, SCHEMA))
    assert sorted(path.name for path in OLD.iterdir()) == [f"schema_{version}" for version in range(1, SCHEMA)]


@pytest.mark.parametrize("folder", sorted(OLD.iterdir()), ids=lambda folder: folder.name)
def test_a_stored_entry_of_an_old_version_is_read_with_its_numbers(folder):
    stored = json.loads((folder / "table.json").read_text())
    board = read_board([folder / "table.json"])
    assert not board.problems
    assert [row.score for row in board.rows] == [row["score"] for row in stored]
    assert {row.phase for row in board.rows} == {"all"}


def test_what_was_measured_again_is_said_of_this_entry_alone(run, tmp_path):
    points = [again(verdict) for verdict in ("holds", "alike", "differs", "unknown")]
    with pytest.raises(UsageError, match="is none"):
        recorder(run)(points)
    entry = submit(run, tmp_path / "entries", about=ABOUT)
    assert (again_of(run), again_of(entry)) == ([], [UNVERIFIED])
    recorder(entry)(points[:2])
    (said,) = again_of(entry)
    assert said.partition(": ")[2] == (
        "2 of its 2 points were measured again: 1 holds, 1 more scores as another seed may; 16 of 16 scores of "
        "documents are the same; 2 of these points are of models trained again"
    )
    recorder(entry)(points)
    file = entry / "verified.json"
    assert {one["code"] for one in json.loads(file.read_text())["measured"]} == {code_of("gateskip")}
    assert "points 3, in the entry 2" in read_board([entry / "table.json"]).refused[0]
    with pytest.raises(UsageError, match=r"5 of 8 are the same\. Give the command without --tolerance"):
        recorder(entry)([again("holds") | {"equal": 5}])
    recorder(entry)(points[:2])
    assert not read_board([entry / "table.json"]).refused
    (entry / "entry.json").write_text((entry / "entry.json").read_text() + " ")
    assert "entry_sha256" in read_board([entry / "table.json"]).refused[0]


def again_of(folder):
    """Whether it was measured again, as its page says it."""
    board = read_board([folder / "table.json"])
    return [run["facts"]["verified"] for run in runs_of(board.folders, again=board.again) if "verified" in run["facts"]]


def again(verdict):
    place = {"method": "gateskip", "semantics": "bench", "task": "nano_math"}
    return place | {"verdict": verdict, "documents": 8, "equal": 8, "trained": True}


@pytest.mark.parametrize(
    "change",
    [
        {"points": "<b>"},
        {"points": 0},
        {"hold": 3},
        {"points": 1e300},
        {"documents": None},
        {"schema": 4},
        {"schema": 6},
        {"measured": []},
        *(
            {"measured": [point(method="gateskip", task="nano_math", documents=8, equal=8) | wrong]}
            for wrong in (
                {"code": "<b>"},
                {"task": ["nano_math"]},
                {"verdict": ["holds"]},
                {"trained": "yes"},
                {"equal": 9},
                {"equal": True},
                {"documents": None},
            )
        ),
        {"schema": True},
        {"verified": None},
        {"measured": 3},
        {"alike": 1},
        {"alike": "1"},
        {"equal": []},
        {"onload": 1},
        {"adaptive_bench": "99.0"},
        {"adaptive_bench": None},
        {"trained": 0},
    ],
)
def test_a_verification_that_cannot_be_is_none(run, tmp_path, change):
    entry = submit(run, tmp_path / "entries", about=ABOUT)
    file = recorder(entry)([again("holds")])
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert "verified.json" in read_board([entry / "table.json"]).refused[0]
    file.write_text("[" * 10_000)
    assert "verified.json is not readable JSON" in read_board([entry / "table.json"]).refused[0]


def test_a_table_of_an_earlier_version_gets_the_columns_that_its_records_know(make_row):
    now = [make_row(level=0.1, flops_per_token=3.0, score=0.7), make_row(level=0.2, flops_per_token=2.0)]
    said = [make_row(level=0.1, score=0.5), make_row(level=0.3)]
    first, second = _completed(said, now)
    assert (first["flops_per_token"], first["score"]) == (3.0, 0.5)
    assert "flops_per_token" not in second, "another row's values are not its own"
