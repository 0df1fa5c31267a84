"""The bar of all jobs says how long they will take yet: where estimates are right from the start, elsewhere soon."""

import heapq
import io
import itertools
import shlex
import subprocess
import sys

import pytest
from rich.console import Console

from adaptive_bench.jobs.job import JobEstimate
from adaptive_bench.jobs.overall_progress import OverallProgress
from adaptive_bench.live_display import RichReporter, open_reporter
from adaptive_bench.progress import (
    DialCalibrated,
    EtaEstimator,
    JobFinished,
    JobStarted,
    Line,
    PlainReporter,
    PointMeasured,
    Reporter,
    SilentReporter,
    TaskAdvanced,
    TaskStarted,
    TrainingStep,
    duration,
)


class Watched(Reporter):
    """Remembers what was shown."""

    def __init__(self):
        self.shown, self.left_s, self.events = 0.0, None, []

    def emit(self, event):
        self.events.append(event)
        if isinstance(event, TaskAdvanced):
            assert event.units >= 0
            self.shown, self.left_s = self.shown + event.units, event.left_s


def estimates(*shapes):
    """`("a", 100, 20, 30)`: a training of 100 s in 50 steps, and evaluations of 20 and 30 s in 50 points."""
    found = []
    for name, training, *evaluations in shapes:
        found.append(JobEstimate(name, training, {TrainingStep(name): training / 50}))
        found += [
            JobEstimate(f"{name}{n}", seconds, {PointMeasured(f"{name}{n}"): seconds / 50}, name)
            for n, seconds in enumerate(evaluations)
        ]
    return found


def offs(expected, slower, workers=2, start_s=12.0):
    """Carry out jobs that take `slower(estimate)` times as long as expected. By how much the bar was off after a minute
    and before the last ten seconds."""
    free, queue, numbers, events = [start_s] * workers, [], itertools.count(), []
    for one in expected:
        if one.after is None:
            heapq.heappush(queue, (0.0, next(numbers), one))
    while queue:
        ready, _, one = heapq.heappop(queue)
        begun = max(ready, heapq.heappop(free))
        ended = begun + one.seconds * slower(one)
        heapq.heappush(free, ended)
        (unit,) = one.unit_s
        events += [(begun, JobStarted(one.job)), (ended, JobFinished(one.job))]
        events += [(begun + (ended - begun) * step / 50, unit) for step in range(1, 51)]
        for other in expected:
            if other.after == one.job:
                heapq.heappush(queue, (ended, next(numbers), other))
    now, found, bar = [0.0], [], Watched()
    overall = OverallProgress(bar, expected, workers, lambda: now[0])
    end = max(at for at, _ in events)
    for at, event in sorted(events, key=lambda pair: (pair[0], isinstance(pair[1], JobFinished))):
        now[0] = at
        overall.emit(event)
        if at >= 60 and end - at > 10:
            found.append(abs(bar.left_s / (end - at) - 1))
    assert bar.shown == pytest.approx(overall.total_s) and bar.left_s == 0
    return max(found)


RUN = estimates(("dense", 150, 5, 40), ("gateskip", 190, 60), ("mod", 180, 50))


@pytest.mark.parametrize(
    ("slower", "workers", "most"),
    [
        *((lambda one: 1.0, workers, 0.2) for workers in (1, 2, 3, 8)),  # where estimates are right it is never off
        (lambda one: 2.0, 2, 0.3),  # a machine twice as slow is found out within a minute
    ],
)
def test_what_is_wrong_with_estimates_is_soon_found_out(slower, workers, most):
    assert offs(RUN, slower, workers) < most


@pytest.mark.parametrize(("before", "after"), [(1.0, 3.0), (3.0, 1.0), (2.0, 5.0)])
def test_a_load_that_comes_or_goes_is_found_out_within_a_minute(before, after):
    """Others begin to use the machine, or end, after 60 seconds of a training."""
    now, bar = [0.0], Watched()
    overall = OverallProgress(bar, estimates(("a", 300.0, 100.0)), 1, lambda: now[0])
    overall.emit(JobStarted("a"))
    for step in range(1, 51):
        now[0] += 6 * (before if now[0] < 60 else after)
        overall.emit(TrainingStep("a"))
        if now[0] > 120:
            assert bar.left_s == pytest.approx((6 * (50 - step) + 100) * after, rel=0.3)


def test_failed_jobs_take_nothing_any_more_and_a_job_waits_for_what_it_builds_on():
    now = [0.0]
    overall = OverallProgress(SilentReporter(), estimates(("a", 100.0, 50.0)), 1, lambda: now[0])
    overall.emit(JobStarted("a"))
    now[0] = 10.0
    for _ in range(5):
        overall.emit(TrainingStep("a"))
    assert overall.left_s(10.0) == pytest.approx(140.0)
    overall.emit(JobFinished("a"))
    assert overall.left_s(10.0) == pytest.approx(50.0)
    chain = [JobEstimate("b", 50.0, after="a"), JobEstimate("a", 100.0)]
    assert OverallProgress(SilentReporter(), chain, 2).total_s == pytest.approx(150.0)
    assert OverallProgress(SilentReporter(), chain[:1], 2).total_s == pytest.approx(50.0)  # `a` is on disk


def test_dial_values_that_are_calibrated_first_make_no_job_look_slow():
    """All of them come before the first point; each has a share of its own."""
    unit_s = {DialCalibrated("a"): 5.0, PointMeasured("a"): 5.0}
    now = [0.0]
    overall = OverallProgress(SilentReporter(), [JobEstimate("a", 80.0, unit_s)], 1, lambda: now[0])
    overall.emit(JobStarted("a"))
    for step in range(16):
        now[0] += 5.0
        overall.emit((DialCalibrated if step < 8 else PointMeasured)("a"))
        assert overall.left_s(now[0]) == pytest.approx(80.0 - now[0])


def test_everything_is_passed_on_and_only_typed_events_move_the_bar():
    """A label may say anything."""
    bar = Watched()
    overall = OverallProgress(bar, estimates(("a", 100.0, 50.0)), 1)
    events = [Line("a: calibrate b, 3/4"), TaskStarted("1", "seed 1: calibrate a0", 4), TaskAdvanced("1", 4)]
    for event in events:
        overall.emit(event)
    assert bar.events[1:] == events and overall.left_s(0.0) == overall.total_s == pytest.approx(150.0)


# What one reporter shows of it.


class Clock:
    """Time that passes when told to."""

    now_s = 0.0

    def monotonic(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("adaptive_bench.progress.time", clock)
    return clock


def test_plain_lines_are_few_and_say_how_long_it_still_takes(clock):
    stream = io.StringIO()
    with PlainReporter(stream, every_s=10).task("train", total=40) as meter:
        for _ in range(40):
            clock.now_s += 1
            meter.advance(1, loss=0.25)
    assert stream.getvalue().splitlines() == [
        "train: 10/40, loss 0.25, 0:30 left",
        "train: 20/40, loss 0.25, 0:20 left",
        "train: 30/40, loss 0.25, 0:10 left",
        "train: 40/40 in 0:40",
    ]


def test_what_comes_before_the_first_unit_does_not_count_as_its_pace():
    eta = EtaEstimator()
    assert eta.left_s(20.0, 10) is None
    eta.note(30.0, 1)
    assert eta.left_s(30.0, 10) is None
    eta.note(34.0, 3)
    assert eta.left_s(34.0, 10) == 14.0
    assert eta.left_s(35.0, 10) == 13.0  # it counts down while nothing is said
    assert eta.left_s(99.0, 10) == 0.0


def test_given_up_work_is_not_shown_as_done(clock):
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), PlainReporter(stream).task("train", total=5) as meter:
        meter.advance(2)
        raise KeyboardInterrupt
    with PlainReporter(stream).task("train base", total=0):  # nothing is said of work that there is none of
        pass
    assert stream.getvalue() == "train: 2/5 in 0:00\n"


def test_live_display_shows_nested_work_and_its_own_lines():
    stream = io.StringIO()
    with (
        RichReporter(Console(file=stream, force_terminal=True, width=120)) as reporter,
        reporter.task("all", total=2) as outer,
        reporter.task("train [x]", total=2) as inner,
    ):
        inner.advance(1, loss=0.5)
        outer.advance()
        reporter.line("batch halved [to 16]")
        reporter.progress.refresh()
    text = stream.getvalue()
    assert all(part in text for part in ("all", "train [x]", "1/2", "loss 0.5", "batch halved [to 16]"))


def test_no_terminal_means_plain_lines(capsys):
    with open_reporter() as reporter:
        assert isinstance(reporter, PlainReporter)
    assert [duration(seconds) for seconds in (0.4, 75, 3700)] == ["0:00", "1:15", "1:01:40"]


def test_nobody_reading_is_no_reason_to_stop():
    """`adaptive-bench run 2>&1 | head -1`"""
    script = (
        "import sys, time; from adaptive_bench.progress import PlainReporter\n"
        "reporter = PlainReporter()\n"
        "for number in range(2000): reporter.line(f'line {number} ' + 'x' * 100)\n"
        "print('worked on', flush=True)"
    )
    program = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)} 2>&1 >&3 | head -1 >/dev/null"
    done = subprocess.run(["bash", "-c", f"exec 3>&1; {program}; exit ${{PIPESTATUS[0]}}"], capture_output=True)
    assert (done.returncode, done.stdout.decode()) == (0, "worked on\n")
