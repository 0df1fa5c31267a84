"""The bar of all jobs moves by what was expected of finished work; its time left is that of the speed so far."""

import io
import shlex
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from adaptive_bench.jobs.pool import OverallProgress
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
