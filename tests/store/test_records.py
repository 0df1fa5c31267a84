"""A record is one file of sections, and a sweep's documents are another one: what is listed is complete."""

import errno
import json
import os
import subprocess
import sys
import time

import pytest

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store import atomic
from adaptive_bench.store.evaluation import Evaluation, Sample
from adaptive_bench.store.keys import changed, digests
from adaptive_bench.store.records import SCHEMA, DialEvaluationRecord


def point(saving, docs=2):
    """A point and its documents; texts hold what some take for the end of a line."""
    saved = dict.fromkeys(("tokens", "core", "net"), saving)
    about = Evaluation("task", saving, {"acc,none": 0.5}, docs, saved, {"sites": []}, 1.0, 10, 5, 2, 0, 0)
    texts = [f"{saving} ü\u2028\x85 {doc}" for doc in range(docs)]
    return about, [Sample(doc, "gold", text, {}, {"acc,none": 1.0}, 1.0) for doc, text in enumerate(texts)]


def add(record, *savings):
    for saving in savings:
        record.add_point(saving, *point(saving), wall_s=3.0)


@pytest.fixture
def record(tmp_path):
    made = DialEvaluationRecord(tmp_path / "sweep")
    made.begin({"method": "mod"})
    add(made, 0.0, 0.3)
    return made


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


@pytest.mark.parametrize("name", ["record.json", "documents.jsonl"])
def test_what_cannot_be_read_is_an_error_with_the_place_and_the_way_out(record, name):
    file = record.folder / name
    file.write_bytes(file.read_bytes()[:-5] + b"\xff\xff\xff\xff\n")
    with pytest.raises(EnvironmentProblem, match=rf"{name}' is not: .*remove the folder '{record.folder}'"):
        record.samples(0.3)


def test_a_record_of_a_newer_version_is_not_taken_for_a_damaged_one(record):
    file = record.folder / "record.json"
    file.write_text(file.read_text().replace(f'"schema": {SCHEMA}', f'"schema": {SCHEMA + 1}'))
    with pytest.raises(EnvironmentProblem, match=f"got schema {SCHEMA + 1}"):
        record.read("config")


# What is written is complete or absent, also when the writer is killed; what changes on disk is noticed.
WRITER = """
import sys
from pathlib import Path
from adaptive_bench.store import atomic
for number in range(100000):
    atomic.write_json(Path(sys.argv[1]), [number] * 5000)
"""


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    path = tmp_path / "numbers.json"
    for delay_s in (0.01, 0.03):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
        while not path.exists():
            time.sleep(0.005)
        time.sleep(delay_s)
        writer.kill()
        writer.wait()
        numbers = json.loads(path.read_text())
        assert len(numbers) == 5000 and len(set(numbers)) == 1


def test_what_takes_a_place_has_reached_the_disk(tmp_path, monkeypatch):
    """A power cut may take what was not synced before the file was there."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_size))
    atomic.write_bytes(tmp_path / "file", b"four")
    assert synced == [4]


def test_a_failed_folder_leaves_nothing_and_one_that_is_there_already_stays(tmp_path):
    with pytest.raises(KeyError), atomic.new_folder(tmp_path / "new") as folder:
        (folder / "half").write_text("half")
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    for content in ("first", "second"):
        with atomic.new_folder(tmp_path / "new") as folder:
            (folder / "file").write_text(content)
    assert (tmp_path / "new" / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("number", "mend"), [(errno.EROFS, "Get permission"), (errno.EACCES, "Get permission"), (errno.ENOSPC, "Free some")]
)
def test_what_to_do_fits_what_the_system_said(tmp_path, number, mend):
    with pytest.raises(EnvironmentProblem, match=f"{mend}.*or choose another folder"), atomic.writable(tmp_path):
        raise OSError(number, os.strerror(number))


def test_a_flipped_byte_and_a_missing_file_are_noticed(tmp_path):
    files = [tmp_path / "a", tmp_path / "b" / "c"]
    (tmp_path / "b").mkdir()
    for file in files:
        file.write_bytes(b"content")
    known = digests(tmp_path, files)
    assert list(known) == ["a", "b/c"] and changed(tmp_path, known) == []
    files[0].write_bytes(b"contens")
    files[1].unlink()
    assert changed(tmp_path, known) == ["a", "b/c"]
