"""Work that gets no further, and work that takes longer than it may."""

import threading
import time

import pytest

from adaptive_bench.errors import ToBeContinued, UsageError
from adaptive_bench.jobs import pool
from adaptive_bench.jobs.pool import Limits, Watch, watched
from adaptive_bench.progress import JobFinished
from adaptive_bench.runs import launching, plan, run
from adaptive_bench.runs.trained import run_name

pytestmark = pytest.mark.slow


class Process:
    """Counts how it is asked to end."""

    def __init__(self):
        self.signals = []
        self.terminate, self.kill = (lambda name=name: self.signals.append(name) for name in ("TERM", "KILL"))


class Clock:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self):
        return self.now


def watch_over(limits, reporter, process=None):
    clock = Clock()
    return Watch("train mine, seed 1", limits, reporter, process, now_s=clock), clock


def test_a_process_is_asked_to_end_at_its_limit_and_then_ended(lines):
    process = Process()
    watch, clock = watch_over(Limits(timeout_s=60), lines, process)
    watch.emit(JobFinished("another"))
    clock.now += 59
    watch.emit(JobFinished("another"))  # progress makes no difference to a limit
    watch.look()
    assert process.signals == [] and not watch.timed_out
    clock.now += 1
    for _ in range(3):
        watch.look()
    assert process.signals == ["TERM"] and watch.timed_out
    clock.now += pool.GRACE_S
    watch.look()
    assert process.signals == ["TERM", "KILL"]
    assert lines.lines == ["train mine, seed 1: ended after 1:00, its --cell-timeout."]


def test_the_time_of_a_process_begins_with_its_first_word(lines):
    """Until then it loads libraries; one that never speaks is not waited for without end."""
    process = Process()
    watch, clock = watch_over(Limits(timeout_s=10), lines, process)
    clock.now += 100
    watch.look()
    assert process.signals == []
    clock.now += pool._START_S - 100
    watch.look()
    assert process.signals == []
    clock.now += 10
    watch.look()
    assert process.signals == ["TERM"]


def test_silence_is_said_with_growing_distance_and_nothing_is_ended(lines):
    process = Process()
    watch, clock = watch_over(Limits(silence_s=60), lines, process)
    said_s = []
    for second in range(1, 1000):
        clock.now += 1
        watch.look()
        if len(lines.lines) > len(said_s):
            said_s.append(second)
    assert said_s == [60, 120, 240, 480, 960] and process.signals == []
    assert lines.lines[1].startswith("train mine, seed 1: no progress for 2:00.")
    for expected in (6, 7):  # what gets further is left alone for as long again
        watch.emit(JobFinished("another"))
        clock.now += 59
        watch.look()
        assert len(lines.lines) == expected - 1
        clock.now += 1
        watch.look()
        assert len(lines.lines) == expected


def test_silence_in_this_process_is_said_from_a_thread(lines, monkeypatch):
    monkeypatch.setattr(pool, "LOOK_S", 0.01)
    with watched("train mine, seed 1", Limits(silence_s=0.05), lines) as told, told.task("steps", 3) as meter:
        meter.advance(1)
        end_s = time.monotonic() + 20
        while not lines.lines and time.monotonic() < end_s:
            time.sleep(0.01)
    assert "train mine, seed 1: no progress" in lines.lines[0]
    assert not [thread for thread in threading.enumerate() if "look" in thread.name]


def test_limits_belong_to_no_key_and_are_not_for_processes_that_work_together(config_of, monkeypatch, lines):
    plain, limited = config_of("dense"), config_of("dense", cell_timeout=5.0, stall_warning=0.0)
    assert run_name(plain) == run_name(limited)
    folders = [[one.folder for one in (*made.trainings, *made.sweeps)] for made in map(plan, (plain, limited))]
    assert folders[0] == folders[1]
    assert launching.limits_of(limited) == Limits(300.0, None) and launching.limits_of(plain) == Limits(None, 600.0)
    monkeypatch.setattr(launching.processes, "world", lambda: launching.processes.Processes(0, 2))
    with pytest.raises(UsageError, match="scheduler's own time limit"):
        launching.carry_out(plan(limited), lines)


def test_trainings_that_never_end_are_ended_alone(eventful_config, lines, monkeypatch):
    """Whether they can be interrupted from within or not; the same command goes on with them. One whose process is
    killed is continued by another process at once.
    """
    monkeypatch.setattr(pool, "GRACE_S", 1.0)
    events = ("loops", "holds", "killed", "quiet")
    config = eventful_config(events, step=8, train={"steps": 10, "checkpoint_every": 5}, cell_timeout=0.25)
    outcome = run(config, lines, jobs=2)
    assert sorted(failure.work for failure in outcome.failures) == [
        "train eventful[event=holds], seed 1",
        "train eventful[event=loops], seed 1",
    ]
    for failure in outcome.failures:
        assert failure.kind == "Time limit" and "took more than 0:15, the --cell-timeout" in failure.reason
    assert {row["method"] for row in outcome.rows} == {"eventful[event=killed]", "eventful[event=quiet]"}
    assert ["event=killed" in line for line in lines.lines if "another one continues it" in line] == [True]
    *endless, killed, quiet = plan(config).trainings
    for training in endless:
        assert training.record.state == "failed" and "CellTimeout" in training.record.reason
        assert (training.folder / "resume").is_dir()
    assert killed.record.state == quiet.record.state == "done"
    monkeypatch.setenv("EVENTS_STEP", "1000")  # as if the methods had been corrected
    again = run(config, lines, jobs=2)
    assert again.failures == [] and [training.record.state for training in plan(config).trainings] == ["done"] * 4
    assert len({(training.folder / "train.jsonl").read_bytes() for training in plan(config).trainings}) == 1


def test_evaluations_that_never_end_are_ended_alone(eventful_config, lines, monkeypatch):
    monkeypatch.setattr(pool, "GRACE_S", 1.0)
    config = eventful_config(("loops_later", "quiet"), step=8, train={"steps": 10}, cell_timeout=0.25)
    outcome = run(config, lines, jobs=1)
    (failure,) = outcome.failures
    assert failure.work == "evaluate eventful[event=loops_later] on nano_qa_ll, seed 1" and failure.kind == "Time limit"
    training, _ = plan(config).trainings
    sweep = next(sweep for sweep in plan(config).sweeps if sweep.training.folder == training.folder)
    assert training.record.state == "done" and sweep.record.state == "failed"
    assert {row["method"] for row in outcome.rows} == {"eventful[event=quiet]"}


def test_a_loop_is_said_and_a_stop_ends_it(eventful_config, lines, tmp_path, monkeypatch):
    """Without a limit nothing ends it but the user, whom it cannot hold up either."""
    monkeypatch.setattr(pool, "GRACE_S", 1.0)
    config = eventful_config(("holds", "quiet"), step=8, train={"steps": 10}, stall_warning=0.05)

    def stop():
        while not (tmp_path / "holding").exists():
            time.sleep(0.1)
        lines.lines.clear()
        while not any("event=holds" in line and "no progress" in line for line in lines.lines):
            time.sleep(0.1)
        pool.stopping.request()

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(ToBeContinued):
        run(config, lines, jobs=2)
