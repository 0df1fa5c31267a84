"""The journal of a study after its writer was killed, or the disk was full."""

import json
import multiprocessing
import os
import signal
import time

import pytest

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.tuning.journal import Journal


def die_with_the_lock(file):
    journal = Journal(file)
    journal._lock.acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_lock_ends_with_the_process_that_had_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path.joinpath("journal.log").relative_to(tmp_path)  # as `--out runs` gives it
    killed = multiprocessing.get_context("fork").Process(target=die_with_the_lock, args=(file,))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    start_s = time.monotonic()
    Journal(file).append_logs([{"it": "goes on"}])
    assert list(Journal(file).read_logs(0)) == [{"it": "goes on"}]
    assert time.monotonic() - start_s < 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.lock", "journal.log"]


@pytest.mark.parametrize("torn", ['{"half', '{"whole but for its end": 1}', "{" * 100_000])
def test_a_line_that_was_cut_short_spoils_no_other(tmp_path, torn):
    file = tmp_path / "journal.log"
    writer, reader = Journal(file), Journal(file)
    writer.append_logs([{"number": 1}])
    assert list(reader.read_logs(0)) == [{"number": 1}]
    with file.open("a") as stream:
        stream.write(torn)
    assert list(Journal(file).read_logs(0)) == [{"number": 1}]
    writer.append_logs([{"number": 2}, {"number": 3}])
    assert list(reader.read_logs(1)) == [{"number": 2}, {"number": 3}]
    assert [json.loads(line)["number"] for line in file.read_text().splitlines()] == [1, 2, 3]


def test_what_cannot_be_written_is_a_problem_of_the_folder(tmp_path):
    journal = Journal(tmp_path / "journal.log")
    (tmp_path / "journal.log").unlink()
    (tmp_path / "journal.log").mkdir()
    with pytest.raises(EnvironmentProblem, match="--out"):
        journal.append_logs([{"number": 1}])
