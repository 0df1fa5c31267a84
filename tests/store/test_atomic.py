"""What is written is complete or absent, also when the writer is killed; what changes on disk is noticed."""

import errno
import json
import os
import subprocess
import sys
import time

import pytest

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import changed, digests

WRITER = """
import sys
from pathlib import Path
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import changed, digests
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
    with atomic.growing(tmp_path / "lines", "one\n") as stream:
        stream.write("two\n")
    assert synced == [4, 4, 8]


def test_a_failed_folder_leaves_nothing(tmp_path):
    with pytest.raises(KeyError), atomic.new_folder(tmp_path / "new") as folder:
        (folder / "half").write_text("half")
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_already_stays(tmp_path):
    for content in ("first", "second"):
        with atomic.new_folder(tmp_path / "new") as folder:
            (folder / "file").write_text(content)
    assert (tmp_path / "new" / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_rows_are_written_as_any_other_list():
    rows = [{"a": 1, "b": None, "c": 'ä\n<"', "d": 1e-17, "e": True}, {"a": 0.1}]
    assert atomic.rows_text(rows) == atomic.json_text(rows)
    assert atomic.rows_text([]) == atomic.json_text([])
    with pytest.raises(ValueError, match="JSON compliant"):
        atomic.rows_text([{"a": float("nan")}])


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
