"""What becomes of work whose process the system ends, of the work beside it and of what a worker prints; and how its
progress is shown.
"""

import io
import multiprocessing
import os
import shlex
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from rich.console import Console

from adaptive_bench import registry
from adaptive_bench.jobs.job import named_plugins
from adaptive_bench.jobs.pool import Limits, OverallProgress, Schedule, Worker
from adaptive_bench.jobs.worker import RemoteReporter, StdoutForwarder
from adaptive_bench.live_display import Display
from adaptive_bench.progress import (
    DialCalibrated,
    JobFinished,
    Line,
    PointMeasured,
    Reporter,
    TaskAdvanced,
    TaskStarted,
    TrainingStep,
    duration,
)


class DyingJob:
    """A job whose process dies in the middle of an event, as often as said. It may build on another one."""

    methods = tasks = ()
    folder = Path("record")
    deaths: ClassVar = {}
    done: ClassVar = []

    def __init__(self, name, base=None):
        self.name, self.base, self.unfinished = name, base, (name,)

    def __str__(self):
        return self.name

    @property
    def is_ready(self):
        return self.base is None or self.base in self.done

    def work(self, pipe):
        """Work in place of a process, and return how that ended."""
        reporter = RemoteReporter(pipe)
        if not self.is_ready:
            self.done.append(f"{self.name}, not ready")
            reporter.send([])
            return None
        reporter.line(f"begin {self.name}")
        task = reporter.task(self.name, 5)
        task.advance(2)
        if self.deaths.get(self.name, 0):
            self.deaths[self.name] -= 1
            pipe._send(b"\0\0\0\7gar")  # a message of seven bytes, of which three arrive
            return -9
        with task:
            task.advance(3)
        self.done.append(self.name)
        reporter.send([])
        return None


class Process:
    """A thread in place of a worker process."""

    def __init__(self, target, args):
        self.pipe, self.exitcode = Connection(os.dup(args[0].fileno())), None
        self.sentinel, self._end = multiprocessing.Pipe()
        self._thread = threading.Thread(target=self._work)
        self.start, self.join = self._thread.start, self._thread.join
        self.kill, self.is_alive = (lambda: None), (lambda: self.exitcode is None)

    def _work(self):
        with suppress(EOFError):
            while self.exitcode is None:
                self.exitcode = self.pipe.recv().work(self.pipe)
        self.pipe.close()
        self._end.close()


@pytest.fixture
def carry_out(monkeypatch):
    """`carry_out(reporter, jobs, **deaths)`: do jobs, whose processes die as often as said."""

    def carry_out(reporter, *jobs, **deaths):
        monkeypatch.setattr(DyingJob, "deaths", deaths)
        monkeypatch.setattr(DyingJob, "done", [])
        workers = [Worker(SimpleNamespace(Pipe=multiprocessing.Pipe, Process=Process), ()) for _ in range(2)]
        failures = Schedule(jobs, reporter, workers, Limits()).run()
        for worker in workers:
            worker.close()
        return failures, sorted(DyingJob.done)

    return carry_out


def test_work_whose_process_is_killed_is_given_once_more(carry_out, lines):
    """It silences nobody, and what it showed is closed."""
    stream = io.StringIO()
    jobs = DyingJob("killed"), DyingJob("after", "killed"), DyingJob("innocent")
    failures, done = carry_out(Display(Console(file=stream)), *jobs, killed=1)
    assert failures == [] and done == ["after", "innocent", "killed"]
    assert sorted(stream.getvalue().splitlines()) == [
        "after: 5/5 in 0:00",
        *("begin after", "begin innocent", "begin killed", "begin killed"),
        "innocent: 5/5 in 0:00",
        *("killed: 2/5 in 0:00", "killed: 5/5 in 0:00"),
        "killed: its process ended by the signal SIGKILL; another one continues it.",
    ]


def test_work_that_is_killed_again_fails_alone(carry_out, lines):
    jobs = DyingJob("killed"), DyingJob("after", "killed"), DyingJob("innocent")
    failures, done = carry_out(lines, *jobs, killed=2)
    assert [failure.work for failure in failures] == ["killed"]
    assert "ended twice by the signal SIGKILL" in failures[0].reason and done == ["after, not ready", "innocent"]
    assert named_plugins([], ["nano_qa", "perplexity:letters", "arc_easy"]) is None, "no plugin's code is to blame"


def test_lines_are_told_whole_and_clean_and_long_ones_are_cut(lines):
    stream = StdoutForwarder(lines)
    print("one", "two", file=stream)
    print("\x1b[2J\x07thr", end="", file=stream)
    assert lines.lines == ["one two"]
    print("ee", file=stream)
    assert lines.lines == ["one two", "three"]
    print("x" * 4_000_000, file=stream)
    print("\n" * 1000, file=stream)
    assert len(lines.lines) == 3 and len(lines.lines[-1]) < 400


# What becomes of a script that starts processes without `if __name__ == "__main__":`.
SCRIPT = """
from adaptive_bench import registry
from adaptive_bench.jobs.worker import check_main, spawn_context

print("the script")
if {needed}:
    registry.register("tasks", "of_this_script")(object())
check_main()
process = spawn_context().Process(target=print, args=("work",), kwargs=dict(flush=True))
process.start()
process.join()
"""


@pytest.mark.parametrize("needed", [False, True])
def test_processes_do_not_run_the_script_again_and_where_they_need_it_a_script_that_starts_them_is_refused(
    tmp_path, needed
):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(needed=needed))
    done = subprocess.run([sys.executable, "-u", script], capture_output=True, text=True, check=True)
    assert done.stdout == ("the script\nthe script\n" if needed else "the script\nwork\n")
    assert bool(done.stderr) == needed
    assert not needed or ("script.py" in done.stderr and 'if __name__ == "__main__":' in done.stderr)


def test_the_script_is_needed_for_what_no_plugin_file_registered(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_registered", {})
    plugin = tmp_path / "plugin.py"
    plugin.write_text("from adaptive_bench import register\nregister('tasks', 'of_a_file')(object())\n")
    registry.load_plugin(plugin)
    assert not registry.needs_main()
    registry.register("tasks", "of_this_process")(object())
    assert registry.needs_main()


# The bar of all jobs moves by what was expected of finished work; its time left is that of the speed so far.


class Clock:
    """Time that passes when told to."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


class Remembering(Reporter):
    """Remembers what was shown."""

    def __init__(self):
        self.events = []

    def emit(self, event):
        self.events.append(event)


def overall(reporter, *jobs):
    """The bar of jobs `(name, seconds, {unit: seconds})`."""
    bar = reporter.task("run", float(sum(seconds for _, seconds, _ in jobs)))
    named = [SimpleNamespace(folder=name, seconds=seconds, unit_s=unit_s) for name, seconds, unit_s in jobs]
    return OverallProgress(reporter, bar, named)


def plain(clock, **given):
    return Display(Console(file=io.StringIO()), now_s=clock, **given)


def said(display):
    return display.console.file.getvalue().splitlines()


@pytest.mark.parametrize("slower", [1, 3])
def test_time_left_is_what_is_expected_at_the_pace_so_far(slower):
    """Dial values are all calibrated before the first point; each unit has a share of its own."""
    clock = Clock()
    display = plain(clock, every_s=0)
    units = {TrainingStep("a"): 2.0}, {DialCalibrated("b"): 5.0, PointMeasured("b"): 15.0}
    bar = overall(display, ("a", 80.0, units[0]), ("b", 160.0, units[1]))
    for unit in [*[TrainingStep("a")] * 40, *[DialCalibrated("b")] * 8, *[PointMeasured("b")] * 8]:
        clock.now_s += slower * (units[0] | units[1])[unit]
        bar.emit(unit)
    left = {line.split(", ")[0]: line.split(", ")[1] for line in said(display)[1:]}
    assert left["run: 50%"] == f"{duration(slower * 120)} left" and left["run: 75%"] == f"{duration(slower * 60)} left"


def test_a_job_is_never_more_than_done_and_when_it_fails_nothing_of_it_is_left():
    shown = Remembering()
    bar = overall(shown, ("a", 100.0, {TrainingStep("a"): 30.0}), ("b", 50.0, {}))
    for event in (*[TrainingStep("a")] * 5, JobFinished("a"), JobFinished("b"), JobFinished("b"), JobFinished("other")):
        bar.emit(event)
    units = [event.units for event in shown.events if isinstance(event, TaskAdvanced)]
    assert units == [30, 30, 30, 10, 0, 0, 50, 0]


def test_everything_is_passed_on_and_only_typed_events_move_the_bar():
    """A label may say anything."""
    shown = Remembering()
    bar = overall(shown, ("a", 100.0, {TrainingStep("a"): 30.0}))
    events = [Line("a: calibrate b, 3/4"), TaskStarted("1", "seed 1: calibrate a0", 4), TaskAdvanced("1", 4)]
    for event in events:
        bar.emit(event)
    assert shown.events[1:] == events


# What one reporter shows of it.


def test_plain_lines_are_few_and_say_how_long_it_still_takes():
    """What comes before the first unit, such as the start of processes, does not count as its pace."""
    clock = Clock()
    display = plain(clock, every_s=10)
    clock.now_s = 30.0
    with display.task("train", total=40) as meter:
        for _ in range(40):
            clock.now_s += 1
            meter.advance(1, loss=0.25)
    assert said(display) == [
        "train: 10/40, loss 0.25, 0:30 left",
        "train: 20/40, loss 0.25, 0:20 left",
        "train: 30/40, loss 0.25, 0:10 left",
        "train: 40/40 in 0:40",
    ]


def test_given_up_work_is_not_shown_as_done():
    display = plain(Clock())
    with pytest.raises(KeyboardInterrupt), display.task("train", total=5) as meter:
        meter.advance(2)
        raise KeyboardInterrupt
    with display.task("train base", total=0):  # nothing is said of work that there is none of
        pass
    assert said(display) == ["train: 2/5 in 0:00"]


def test_live_display_shows_nested_work_and_its_own_lines():
    stream = io.StringIO()
    with (
        Display(Console(file=stream, force_terminal=True, width=120)) as reporter,
        reporter.task("all", total=2) as outer,
        reporter.task("train [x]", total=2) as inner,
    ):
        inner.advance(1, loss=0.5)
        outer.advance()
        reporter.line("batch halved [to 16]")
        reporter.progress.refresh()
    text = stream.getvalue()
    assert all(part in text for part in ("all", "train [x]", "1/2", "loss 0.5", "batch halved [to 16]"))


def test_seconds_are_shown_as_on_a_clock():
    assert [duration(seconds) for seconds in (0.4, 75, 3700)] == ["0:00", "1:15", "1:01:40"]


def test_nobody_reading_is_no_reason_to_stop():
    """`adaptive-bench run 2>&1 | head -1`"""
    script = (
        "import sys, time; from adaptive_bench.live_display import Display\n"
        "reporter = Display()\n"
        "for number in range(2000): reporter.line(f'line {number} ' + 'x' * 100)\n"
        "print('worked on', flush=True)"
    )
    program = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)} 2>&1 >&3 | head -1 >/dev/null"
    done = subprocess.run(["bash", "-c", f"exec 3>&1; {program}; exit ${{PIPESTATUS[0]}}"], capture_output=True)
    assert (done.returncode, done.stdout.decode()) == (0, "worked on\n")
