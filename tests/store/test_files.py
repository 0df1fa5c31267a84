"""Files of records that are read once while somebody looks at them, and anew by everybody else."""

import threading

import pytest

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store import atomic
from adaptive_bench.store import files as kept_files
from adaptive_bench.store.files import Files, files_of, read_once


def test_who_looks_in_another_thread_leaves_nothing_behind(tmp_path):
    entered, leave = threading.Event(), threading.Event()

    def look():
        with read_once():
            entered.set()
            leave.wait(10)

    other = threading.Thread(target=look)
    with read_once():
        other.start()
        entered.wait(10)
    leave.set()  # the one that came second leaves second
    other.join()
    assert files_of(tmp_path).content("0.json") is None
    (tmp_path / "0.json").write_text("{}")
    assert files_of(tmp_path).content("0.json") == b"{}"


def test_of_many_records_the_content_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_files, "_MOST_KEPT_BYTES", 1)
    monkeypatch.setattr(kept_files, "_LOOKED_AT", 2)
    folders = [tmp_path / str(number) for number in range(4)]
    for folder in folders:
        folder.mkdir()
        (folder / "0.json").write_text("{}")
    with read_once():
        assert [files_of(folder).content("0.json") for folder in folders] == [b"{}"] * 4
        (folders[0] / "0.json").write_text("[]")
        first = files_of(folders[0])
        assert first.content("0.json") == b"[]"


def test_a_folder_in_place_of_a_file_is_told_as_such(tmp_path):
    (tmp_path / "config.json").mkdir()
    with pytest.raises(EnvironmentProblem, match=r"config.json' is a folder. Remove it"):
        Files(tmp_path).read("config.json")
    with pytest.raises(EnvironmentProblem, match="Remove the folder there"):
        atomic.write_text(tmp_path / "config.json", "")
