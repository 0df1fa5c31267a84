"""Who works on a record: the dead are not waited for, the living are, and whoever lost it writes nothing any more."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace

import pytest

from adaptive_bench.errors import EnvironmentProblem, Superseded
from adaptive_bench.progress import SilentReporter
from adaptive_bench.store import atomic, lock
from adaptive_bench.store.lock import OWNER, Owner, exclusive, is_held
from adaptive_bench.store.records import Record

HOLDER = """
import sys, time
from pathlib import Path
from adaptive_bench.progress import SilentReporter
from adaptive_bench.store import atomic
from adaptive_bench.store.lock import exclusive
record = Path(sys.argv[1])
for _ in range(int(sys.argv[2])):
    with exclusive(record, "it", SilentReporter()):
        count = int((record / "count").read_text()) if (record / "count").exists() else 0
        atomic.write_text(record / ".half.tmp", "")
        time.sleep(float(sys.argv[3]))
        atomic.write_text(record / "count", str(count + 1))
"""


def holder(record, times, seconds, *, begun=False):
    """Another process that takes the record so many times, each time for so long; at once, or when it has begun."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(record), str(times), str(seconds)])
    while begun and not (record / ".half.tmp").exists():
        time.sleep(0.01)
    return process


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(lock, "_LOOK_S", 0.05)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """`elsewhere(...)`: somebody is at the record; by default on another machine that shares no locks with this one."""
    monkeypatch.setattr(lock, "SILENCE_S", 1.0)

    def hold(**changes):
        atomic.write_json(tmp_path / OWNER, asdict(replace(Owner.here(), **{"host": "another", **changes})))

    return hold


def test_a_killed_process_is_not_waited_for_and_leaves_nothing(tmp_path, lines):
    other = holder(tmp_path, 1, 100, begun=True)
    assert is_held(tmp_path) and lock.owner(tmp_path).pid == other.pid
    other.kill()
    other.wait()
    assert not is_held(tmp_path) and (tmp_path / OWNER).exists()
    with exclusive(tmp_path, "it", lines):
        assert is_held(tmp_path) and lock.owner(tmp_path).pid == os.getpid() and lines.lines == []
    assert list(tmp_path.iterdir()) == []


def test_processes_take_turns(tmp_path):
    others = [holder(tmp_path, 5, 0.01) for _ in range(3)]
    assert [other.wait() for other in others] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "15"


def test_a_living_process_is_waited_for_and_said_to_be_at_it_once(tmp_path, lines):
    other = holder(tmp_path, 1, 1, begun=True)
    with exclusive(tmp_path, "it", lines):
        assert (tmp_path / "count").read_text() == "1"
    assert [line.partition(" on ")[0] for line in lines.lines] == [f"it: process {other.pid}"]
    assert lines.lines[0].endswith(" is running it, waiting for its result")


def test_a_silent_machine_is_taken_over_and_its_return_refused(tmp_path, elsewhere):
    start_s = time.monotonic()
    elsewhere()
    assert is_held(tmp_path)
    with exclusive(tmp_path, "it", SilentReporter()):
        assert 0.98 <= time.monotonic() - start_s < 30  # times of files are some milliseconds coarse
        with pytest.raises(Superseded), atomic.new_folder(tmp_path / "checkpoint") as folder:
            (folder / "weights").write_text("what was being written does not land")
            elsewhere()  # this process is the silent one now
        for write in (
            lambda: atomic.write_text(tmp_path / "point.json", "late"),
            lambda: atomic.remove(tmp_path / OWNER),
            lambda: Record(tmp_path).log("late"),
        ):
            with pytest.raises(Superseded, match="another"):
                write()
    assert [path.name for path in tmp_path.iterdir() if path.name != lock.LOCK] == [OWNER]
    os.utime(tmp_path / OWNER)
    assert lock.owner(tmp_path).host == "another" and is_held(tmp_path)
    os.utime(tmp_path / OWNER, (1, 1))
    assert not is_held(tmp_path)


def test_a_machine_that_gives_signs_of_life_is_waited_for_whatever_the_clocks_say(tmp_path, elsewhere, monkeypatch):
    elsewhere()
    monkeypatch.setattr(time, "time", lambda: 4e9)  # a clock that jumped a century ahead
    order = []

    def wait():
        with exclusive(tmp_path, "it", SilentReporter()):
            order.append("mine")

    waiting = threading.Thread(target=wait)
    waiting.start()
    for _ in range(15):
        os.utime(tmp_path / OWNER)  # by the clock of the file system
        time.sleep(0.1)
    order.append("other")
    (tmp_path / OWNER).unlink()
    waiting.join(10)
    assert order == ["other", "mine"]


def test_signs_of_life_are_given(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT_S", 0.02)
    with exclusive(tmp_path, "it", SilentReporter()):
        os.utime(tmp_path / OWNER, (1, 1))
        time.sleep(0.3)
        assert (tmp_path / OWNER).stat().st_mtime > 1


@pytest.mark.parametrize("text", ["", '{\n  "host":', "[]"])
def test_a_damaged_file_of_an_owner_keeps_nobody_out_and_an_error_in_the_block_releases(tmp_path, text):
    (tmp_path / OWNER).write_text(text)
    with pytest.raises(KeyError), exclusive(tmp_path, "it", SilentReporter()):
        assert lock.owner(tmp_path).pid == os.getpid()
        raise KeyError
    assert not is_held(tmp_path) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("emptied", [False, True])
def test_a_folder_that_was_removed_or_emptied_is_not_filled_again(tmp_path, emptied):
    record = tmp_path / "record"
    with pytest.raises(EnvironmentProblem, match="was removed"), exclusive(record, "it", SilentReporter()):
        record.rename(tmp_path / "away")
        if emptied:
            record.mkdir()
        atomic.write_text(record / "point.json", "late")
    assert record.exists() == emptied and not any(record.glob("*"))


@pytest.mark.parametrize(("finished", "expected"), [(True, "done"), (False, "partial")])
def test_what_nobody_is_at_never_reads_running(tmp_path, elsewhere, finished, expected):
    record = Record(tmp_path)
    with exclusive(tmp_path, "it", SilentReporter()):
        record.begin({"method": "dense"})
        assert record.state == "running"
        if finished:
            (tmp_path / "checkpoint").mkdir()
    elsewhere(host=Owner.here().host, pid=2**22 - 1)  # as after a kill
    assert record.read("status")["state"] == "running"
    assert record.state == expected
    if finished:
        record.mark_done()
        assert record.read("status")["state"] == "done"
        assert not (tmp_path / OWNER).exists()
        elsewhere(host=Owner.here().host, pid=2**22 - 1)  # a kill after it was done
        record.mark_done()
        assert not (tmp_path / OWNER).exists()
