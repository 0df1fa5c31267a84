"""A record is one file of sections, and a sweep's documents are another one: what is listed is complete."""

import pytest

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store.evaluation import Evaluation, Sample
from adaptive_bench.store.records import SCHEMA, DialEvaluationRecord, Record


def point(saving, docs=2):
    """A point and its documents; texts hold what some take for the end of a line."""
    saved = dict.fromkeys(("tokens", "core", "net"), saving)
    about = Evaluation("task", saving, {"acc,none": 0.5}, docs, saved, {"sites": []}, 1.0, 10, 5, 2, 0, 0)
    return about, [
        Sample(doc, "gold", f"{saving} ü\u2028\x85 {doc}", {}, {"acc,none": 1.0}, 1.0) for doc in range(docs)
    ]


def add(record, *savings):
    for saving in savings:
        record.add_point(saving, *point(saving), wall_s=3.0)


@pytest.fixture
def record(tmp_path):
    made = DialEvaluationRecord(tmp_path / "sweep")
    made.begin({"method": "mod"})
    add(made, 0.0, 0.3)
    return made


def test_sections_stand_beside_each_other(tmp_path):
    record = Record(tmp_path)
    assert record.read("config") is None and record.state == "planned"
    record.write("config", {"method": "mod"})
    record.write("cost", {"flops": 1.0})
    record.write("cost", {"flops": 2.0})
    assert record.read("config") == {"method": "mod"} and record.read("cost") == {"flops": 2.0}


def test_points_have_their_documents_and_nobody_else_s(record):
    assert record.savings() == [0.0, 0.3] and record.points() == {saving: point(saving)[0] for saving in (0.0, 0.3)}
    for saving in (0.0, 0.3):
        assert record.samples(saving) == point(saving)[1] and record.samples(saving, 1) == point(saving)[1][:1]
    assert record.samples(0.2) == [] and record.point(0.2) is None and record.measuring_s(0.3) == 3.0
    asked = DialEvaluationRecord(record.folder, [0.3, 0.5])
    assert asked.savings() == [0.3] and asked.point(0.0) is not None


@pytest.mark.parametrize("left", ["half a li", "a document that no point lists\n" * 9])
def test_what_a_killed_process_left_behind_goes(record, left):
    whole = (record.folder / "documents.jsonl").read_text()
    with (record.folder / "documents.jsonl").open("a") as stream:
        stream.write(left)
    assert record.samples(0.3) == point(0.3)[1]
    add(record, 0.2)
    text = (record.folder / "documents.jsonl").read_text()
    assert text.startswith(whole) and left not in text and text.count("\n") == 6
    assert record.savings() == [0.0, 0.2, 0.3] and record.samples(0.2) == point(0.2)[1]


@pytest.mark.parametrize("size_bytes", [0, 50, -1])
def test_a_point_whose_documents_are_gone_is_measured_again(record, size_bytes):
    file = record.folder / "documents.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:size_bytes])
    lost = [saving for saving in (0.0, 0.3) if saving not in record.savings()]
    assert lost == ([0.3] if size_bytes == -1 else [0.0, 0.3]) and record.samples(0.3) == []
    add(record, *lost)
    assert file.read_bytes() == whole and record.samples(0.3) == point(0.3)[1]


def test_documents_that_cannot_be_read_are_an_error_with_the_place_and_the_way_out(record):
    file = record.folder / "documents.jsonl"
    file.write_bytes(file.read_bytes()[:-5] + b"\xff\xff\xff\xff\n")
    with pytest.raises(EnvironmentProblem, match=r"documents\.jsonl' is not from byte \d+ to \d+: .*Remove the folder"):
        record.samples(0.3)


@pytest.mark.parametrize("content", ['{"config": {"me', "[]", "", "\xff"])
def test_a_record_that_cannot_be_parsed_is_put_aside_and_the_log_says_so(record, content):
    file = record.folder / "record.json"
    file.write_text(content, encoding="latin-1")
    again = DialEvaluationRecord(record.folder)
    assert again.is_damaged and again.state == "planned" and again.savings() == []
    again.begin({"method": "mod"})
    assert (record.folder / "record.json.damaged").read_text(encoding="latin-1") == content
    assert "record.json could not be read and is now record.json.damaged" in (record.folder / "log.txt").read_text()
    add(again, 0.0)
    assert again.savings() == [0.0] and (record.folder / "documents.jsonl").read_text().count("\n") == 2


def test_a_record_of_a_newer_version_is_not_taken_for_a_damaged_one(record):
    file = record.folder / "record.json"
    file.write_text(file.read_text().replace(f'"schema": {SCHEMA}', f'"schema": {SCHEMA + 1}'))
    with pytest.raises(EnvironmentProblem, match=f"got schema {SCHEMA + 1}"):
        record.read("config")
