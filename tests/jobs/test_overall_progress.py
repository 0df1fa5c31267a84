"""The bar of all jobs says how long they will take yet: where estimates are right from the start, elsewhere soon."""

import heapq
import itertools

import pytest

from adaptive_bench.jobs.job import JobEstimate
from adaptive_bench.jobs.overall_progress import OverallProgress
from adaptive_bench.progress import (
    DialCalibrated,
    JobFinished,
    JobStarted,
    Line,
    PointMeasured,
    Reporter,
    SilentReporter,
    TaskAdvanced,
    TaskStarted,
    TrainingStep,
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
        found.append(JobEstimate(name, training, "train", {TrainingStep(name): training / 50}))
        found += [
            JobEstimate(f"{name}{n}", seconds, "evaluate", {PointMeasured(f"{name}{n}"): seconds / 50}, name)
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
        unit = TrainingStep if one.kind == "train" else PointMeasured
        events += [(begun, JobStarted(one.job)), (ended, JobFinished(one.job))]
        events += [(begun + (ended - begun) * step / 50, unit(one.job)) for step in range(1, 51)]
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


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_where_estimates_are_right_it_is_never_off(workers):
    assert offs(RUN, lambda one: 1.0, workers) < 0.2


def test_a_machine_twice_as_slow_is_found_out_within_a_minute():
    assert offs(RUN, lambda one: 2.0) < 0.3


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


def test_evaluations_that_take_less_than_expected_are_found_out_by_the_first():
    assert offs(RUN, lambda one: 1.0 if one.kind == "train" else 0.75) < 0.3


def test_failed_jobs_take_nothing_any_more():
    now = [0.0]
    overall = OverallProgress(SilentReporter(), estimates(("a", 100.0, 50.0)), 1, lambda: now[0])
    overall.emit(JobStarted("a"))
    now[0] = 10.0
    for _ in range(5):
        overall.emit(TrainingStep("a"))
    assert overall.left_s(10.0) == pytest.approx(140.0)
    overall.emit(JobFinished("a"))
    assert overall.left_s(10.0) == pytest.approx(50.0)


def test_dial_values_that_are_calibrated_first_make_no_job_look_slow():
    """All of them come before the first point; each has a share of its own."""
    unit_s = {DialCalibrated("a"): 5.0, PointMeasured("a"): 5.0}
    now = [0.0]
    overall = OverallProgress(SilentReporter(), [JobEstimate("a", 80.0, "evaluate", unit_s)], 1, lambda: now[0])
    overall.emit(JobStarted("a"))
    for step in range(16):
        now[0] += 5.0
        overall.emit((DialCalibrated if step < 8 else PointMeasured)("a"))
        assert overall.left_s(now[0]) == pytest.approx(80.0 - now[0])


def test_a_job_waits_for_what_it_builds_on():
    chain = [JobEstimate("b", 50.0, "train", after="a"), JobEstimate("a", 100.0, "train")]
    assert OverallProgress(SilentReporter(), chain, 2).total_s == pytest.approx(150.0)
    assert OverallProgress(SilentReporter(), chain[:1], 2).total_s == pytest.approx(50.0)  # `a` is on disk


def test_everything_is_passed_on_and_only_typed_events_move_the_bar():
    """A label may say anything."""
    bar = Watched()
    overall = OverallProgress(bar, estimates(("a", 100.0, 50.0)), 1)
    events = [Line("a: calibrate b, 3/4"), TaskStarted("1", "seed 1: calibrate a0", 4), TaskAdvanced("1", 4)]
    for event in events:
        overall.emit(event)
    assert bar.events[1:] == events and overall.left_s(0.0) == overall.total_s == pytest.approx(150.0)
