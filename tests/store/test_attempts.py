"""Attempts at a record: the newest one writes, the others cannot; the dead are not waited for, the living are."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench.errors import Superseded
from adaptive_bench.progress import SilentReporter
from adaptive_bench.store import atomic, attempts, holder
from adaptive_bench.store.attempts import exclusive, is_held, newest
from adaptive_bench.store.holder import JOB_VARIABLE, RESTART_VARIABLE, Holder
from adaptive_bench.store.records import Record


def claim(record: Path, me: Holder | None = None) -> attempts.Attempt:
    """The next attempt, made without asking whether the last one is over: what a partition comes down to."""
    (record / attempts.FOLDER).mkdir(parents=True, exist_ok=True)
    last = newest(record)
    made = attempts._claim(record / attempts.FOLDER, last.number + 1 if last else 1, me or Holder.here())
    assert made is not None
    return made


OPERATIONS = {
    "file": lambda record, text: atomic.write_text(record / "point.json", text),
    "folder": lambda record, text: _write_folder(record / f"checkpoint-{text}", text),
    "log": lambda record, text: _write_log(record / "train.jsonl", text),
    "removal": lambda record, text: atomic.remove(record / "resume"),
    "rename": lambda record, text: atomic.move(record / "old.json", record / "old.json.damaged"),
}


def _write_folder(folder: Path, text: str) -> None:
    with atomic.new_folder(folder) as temporary:
        (temporary / "weights").write_text(text)


def _write_log(file: Path, text: str) -> None:
    with atomic.growing(file, text) as log:
        atomic.check_stage()
        log.write(text)


def contents(record: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(record)): path.read_bytes()
        for path in sorted(record.rglob("*"))
        if path.is_file() and attempts.FOLDER not in path.parts
    }


@pytest.mark.parametrize("name", OPERATIONS)
def test_whoever_was_taken_over_changes_nothing_any_more(tmp_path, name):
    (tmp_path / "resume").mkdir()
    (tmp_path / "resume" / "step").write_text("kept")
    (tmp_path / "old.json").write_text("{")
    older = claim(tmp_path)
    with atomic.fenced(tmp_path, older.folder):
        atomic.write_text(tmp_path / "point.json", "older")
        claim(tmp_path)
        before = contents(tmp_path)
        with pytest.raises(Superseded, match="newer attempt"):
            OPERATIONS[name](tmp_path, "later")
    assert contents(tmp_path) == before


def test_a_log_that_was_taken_over_is_written_where_nobody_looks(tmp_path):
    older = claim(tmp_path)
    with atomic.fenced(tmp_path, older.folder), atomic.growing(tmp_path / "train.jsonl") as log:
        log.write("1\n")
        log.flush()
        newer = claim(tmp_path)
        with atomic.fenced(tmp_path, newer.folder), atomic.growing(tmp_path / "train.jsonl", "1\n") as other:
            log.write("of the older\n")
            log.flush()
            other.write("2\n")
    assert (tmp_path / "train.jsonl").read_text() == "1\n2\n"


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(sorted(OPERATIONS))), max_size=25), st.data())
@settings(max_examples=60, deadline=None)
def test_only_the_newest_of_many_attempts_ever_writes(tmp_path_factory, steps, data):
    """Attempts come and go in any order; what was taken over never lands."""
    record = tmp_path_factory.mktemp("record")
    made = [claim(record)]
    for chosen, name in steps:
        if data.draw(st.booleans()):
            made.append(claim(record))
        writer = made[max(0, len(made) - 1 - chosen)]
        before = contents(record)
        with atomic.fenced(record, writer.folder):
            if writer is made[-1]:
                if name == "rename":
                    atomic.write_text(record / "old.json", "x")
                OPERATIONS[name](record, str(writer.number))
            else:
                with pytest.raises(Superseded):
                    OPERATIONS[name](record, str(writer.number))
                assert contents(record) == before
    assert [attempt.number for attempt in made] == list(range(1, len(made) + 1))
    assert [attempt.is_open for attempt in made] == [attempt is made[-1] for attempt in made]


WRITER = """
import sys
from pathlib import Path
from adaptive_bench.store import atomic
from adaptive_bench.errors import Superseded
record, stage = Path(sys.argv[1]), Path(sys.argv[2])
with atomic.fenced(record, stage):
    count = 0
    print("writing", flush=True)
    try:
        while True:
            count += 1
            atomic.write_text(record / "who", f"older {count}")
    except Superseded:
        print("superseded", flush=True)
"""


def test_a_process_in_full_swing_is_cut_off_at_once(tmp_path):
    older = claim(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), str(older.folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    time.sleep(0.1)
    newer = claim(tmp_path)
    with atomic.fenced(tmp_path, newer.folder):
        atomic.write_text(tmp_path / "who", "newer")
    for _ in range(200):
        assert (tmp_path / "who").read_text() == "newer"
    assert process.stdout.readline() == "superseded\n"
    process.wait()
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.fixture
def elsewhere(monkeypatch):
    """`elsewhere(record)`: somebody on another machine holds the record, and gives no more signs of life."""
    monkeypatch.setattr(attempts, "_LOOK_S", 0.02)
    monkeypatch.setattr(attempts, "SILENCE_S", 0.3)

    def hold(record: Path, **changes) -> attempts.Attempt:
        return claim(record, replace(Holder.here(), **{"host": "another", **changes}))

    return hold


def test_a_silent_attempt_on_another_machine_is_taken_over_in_time(tmp_path, elsewhere):
    older = elsewhere(tmp_path)
    assert is_held(tmp_path)
    start_s = time.monotonic()
    with exclusive(tmp_path, "it", SilentReporter()) as mine:
        assert mine.number == 2 and time.monotonic() - start_s >= 0.3
        assert not older.is_open
    assert not is_held(tmp_path)


def test_an_attempt_that_gives_signs_of_life_is_waited_for_whatever_the_clocks_say(tmp_path, elsewhere, monkeypatch):
    other, order = elsewhere(tmp_path), []
    monkeypatch.setattr(time, "time", lambda: 4e9)  # a clock that jumped a century ahead

    def wait() -> None:
        with exclusive(tmp_path, "it", SilentReporter()):
            order.append("mine")

    waiting = threading.Thread(target=wait)
    waiting.start()
    for beat in range(10):
        (other.folder / "beat").write_text(str(beat))
        os.utime(other.folder / "beat", (1, 1))
        time.sleep(0.1)
    order.append("other")
    attempts._end(other.folder)
    waiting.join(10)
    assert order == ["other", "mine"]


@pytest.mark.parametrize("change", [{"started": "1"}, {"boot": "another"}, {"pid": 2**22 + 1}])
def test_a_dead_process_of_this_machine_is_not_waited_for(tmp_path, change, lines):
    claim(tmp_path, replace(Holder.here(), **change))
    assert not is_held(tmp_path)
    with exclusive(tmp_path, "it", lines):
        assert is_held(tmp_path) and lines.lines == []


def test_a_process_in_another_container_is_judged_by_its_signs_of_life(tmp_path, elsewhere):
    elsewhere(tmp_path, host=Holder.here().host, space="pid:[1]", pid=2**22 + 1)
    assert is_held(tmp_path)


def test_a_requeued_job_does_not_wait_for_its_earlier_start(tmp_path, elsewhere, monkeypatch, lines):
    older = elsewhere(tmp_path, job="slurm 17_3", restart=0)
    monkeypatch.setattr(attempts, "SILENCE_S", 1000.0)
    monkeypatch.setenv(JOB_VARIABLE, "slurm 17_3")
    monkeypatch.setenv(RESTART_VARIABLE, "1")
    with exclusive(tmp_path, "it", lines) as mine:
        assert not older.is_open and mine.number == 2 and lines.lines == []
    monkeypatch.setenv(RESTART_VARIABLE, "0")
    with pytest.raises(Superseded, match="start 0 of slurm 17_3"), exclusive(tmp_path, "it", lines):
        pass


def test_many_at_once_take_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(attempts, "_LOOK_S", 0.001)
    inside, most, numbers = [], [], []

    def work() -> None:
        with exclusive(tmp_path, "it", SilentReporter()) as mine:
            inside.append(mine)
            most.append(len(inside))
            numbers.append(mine.number)
            time.sleep(0.002)
            inside.remove(mine)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert max(most) == 1 and len(set(numbers)) == 12


@pytest.mark.parametrize("text", ["", '{\n  "host":'])
def test_a_process_that_ended_amid_its_claim_is_not_waited_for(tmp_path, monkeypatch, text):
    monkeypatch.setattr(attempts, "_LOOK_S", 100.0)
    gone = subprocess.Popen(["true"])
    gone.wait()
    claim(tmp_path, replace(Holder.here(), pid=gone.pid))
    (tmp_path / attempts.FOLDER / "1.json").write_text(text)
    assert not is_held(tmp_path)
    with exclusive(tmp_path, "it", SilentReporter()) as mine:
        assert mine.number == 2


def test_of_two_with_the_number_of_a_cut_off_claim_the_one_that_may_be_alive_counts(tmp_path, elsewhere):
    lost, won = elsewhere(tmp_path), tmp_path / attempts.FOLDER / "1.ffffffff"
    won.mkdir()
    (won / "claim.json").write_text(json.dumps(Holder.here().to_json()))
    attempts._under_way.add(won.resolve())
    try:
        for changes in ({"host": "another"}, {"pid": 1, "started": "0"}):
            (lost.folder / "claim.json").write_text(json.dumps(replace(Holder.here(), **changes).to_json()))
            (tmp_path / attempts.FOLDER / "1.json").write_text("")
            assert is_held(tmp_path)
    finally:
        attempts._under_way.discard(won.resolve())


def test_a_damaged_claim_is_judged_by_its_signs_of_life(tmp_path, elsewhere):
    other = elsewhere(tmp_path)
    for file in (other.folder / "claim.json", tmp_path / attempts.FOLDER / "1.json"):
        file.write_text("{")
    assert newest(tmp_path).holder is None and is_held(tmp_path)
    with exclusive(tmp_path, "it", SilentReporter()) as mine:
        assert mine.number == 2


def test_a_process_name_with_brackets_is_understood(monkeypatch):
    assert not Holder.here().is_gone
    assert holder._started(os.getpid()) == Holder.here().started != ""


@pytest.mark.parametrize(("finished", "expected"), [(True, "done"), (False, "partial")])
def test_what_nobody_is_at_never_reads_running(tmp_path, finished, expected):
    record = Record(tmp_path)
    with exclusive(tmp_path, "it", SilentReporter()):
        record.begin({"method": "dense"})
        assert record.state == "running"
        if finished:
            (tmp_path / "checkpoint").mkdir()
    assert record.read("status")["state"] == "running"  # as after a kill
    assert record.state == expected
    if finished:
        record.mark_done()
        assert record.read("status")["state"] == "done"


def test_a_process_never_waits_for_an_attempt_of_its_own_that_an_error_ended(tmp_path, monkeypatch):
    rename = Path.rename

    def refuse(self, target):
        if self.parent.name == attempts.FOLDER:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", refuse)
        with exclusive(tmp_path, "work", SilentReporter()):
            atomic.write_text(tmp_path / "result", "is kept")
    assert newest(tmp_path).is_open and not is_held(tmp_path)
    with exclusive(tmp_path, "work", SilentReporter()) as attempt:
        assert attempt.number == 2 and (tmp_path / "result").read_text() == "is kept" and is_held(tmp_path)
    assert not list((tmp_path / attempts.FOLDER).glob("*[!n]"))


def test_an_attempt_that_could_not_begin_is_waited_for_by_nobody(tmp_path, monkeypatch):
    claim(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(attempts, "_end", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(OSError, match="Input/output"):
            claim(tmp_path)
    assert not newest(tmp_path).is_open


@pytest.mark.parametrize("stage", ["open", "aside"])
def test_nothing_is_left_of_a_process_that_was_killed_after_its_last_word(tmp_path, stage):
    record = Record(tmp_path)
    record.begin({})
    record.move("done")
    attempt = claim(tmp_path, replace(Holder.here(), pid=2**22 - 1))
    if stage == "aside":
        attempt.folder.rename(attempt.folder.with_name(".1.ab"))
    record.mark_done()
    assert [path.name for path in (tmp_path / attempts.FOLDER).iterdir()] == ["1.json"]
    assert record.state == "done"
