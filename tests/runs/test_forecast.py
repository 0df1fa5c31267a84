"""The bar of a run says how long it will take yet: where estimates are right from the start, elsewhere soon."""

import heapq
import itertools

import pytest

from adaptive_bench.progress import Meter
from adaptive_bench.runs.cost.forecast import Forecast, Piece
from adaptive_bench.runs.workers.overall import Clock


class Watched(Meter):
    """Remembers what was shown."""

    def __init__(self):
        self.shown, self.left_s = 0.0, None

    def expect(self, left_s):
        self.left_s = left_s

    def advance(self, units=1, **info):
        assert units >= 0
        self.shown += units

    def end(self): ...


def pieces(*shapes):
    """`("a", 100, 20, 30)`: a training of 100 s, and evaluations of 20 and 30 s, one of which calibrates."""
    found = []
    for name, training, *measurings in shapes:
        found.append(Piece(name, training, "train"))
        kinds = itertools.cycle(("measure", "calibrate"))
        found += [Piece(f"{name}{n}", one, next(kinds), name) for n, one in enumerate(measurings)]
    return found


def offs(expected, slower, jobs=2, start_s=12.0):
    """Carry out work that takes `slower(piece)` times as long as expected. By how much the bar was off after a minute
    and before the last ten seconds, and the bar."""
    free, queue, numbers, events = [start_s] * jobs, [], itertools.count(), []
    for piece in expected:
        if piece.after is None:
            heapq.heappush(queue, (0.0, next(numbers), piece))
    while queue:
        ready, _, piece = heapq.heappop(queue)
        begun = max(ready, heapq.heappop(free))
        ended = begun + piece.seconds * slower(piece)
        heapq.heappush(free, ended)
        events += [(begun + (ended - begun) * step / 50, piece, piece.seconds / 50 * (step > 0)) for step in range(51)]
        events.append((ended, piece, None))
        for other in expected:
            if other.after == piece.key:
                heapq.heappush(queue, (ended, next(numbers), other))
    bar, now, found = Watched(), [0.0], []
    clock = Clock(bar, Forecast(expected, jobs), lambda: now[0])
    end = max(event[0] for event in events)
    for at, piece, units in sorted(events, key=lambda event: (event[0], event[2] is None)):
        now[0] = at
        clock.advance(units or 0.0, work=piece.key, over=int(units is None))
        if at >= 60 and end - at > 10:
            found.append(abs(bar.left_s / (end - at) - 1))
    assert bar.shown == pytest.approx(clock.total) and bar.left_s == 0
    return max(found)


RUN = pieces(("dense", 150, 5, 40), ("gateskip", 190, 60), ("mod", 180, 50))


@pytest.mark.parametrize("jobs", [1, 2, 3, 8])
def test_where_estimates_are_right_it_is_never_off(jobs):
    assert offs(RUN, lambda piece: 1.0, jobs) < 0.2


def test_a_machine_twice_as_slow_is_found_out_within_a_minute():
    assert offs(RUN, lambda piece: 2.0) < 0.3


def test_evaluations_that_take_less_than_expected_are_found_out_by_the_first():
    assert offs(RUN, lambda piece: 1.0 if piece.kind == "train" else 0.75) < 0.3


def test_failed_work_takes_nothing_any_more():
    forecast = Forecast(pieces(("a", 100.0, 50.0)), 1)
    forecast.note("a", 0.0, 0.0)
    forecast.note("a", 10.0, 10.0)
    assert forecast.left_s(10.0) == pytest.approx(140.0)
    forecast.note("a", 0.0, 10.0, over=True)
    assert forecast.left_s(10.0) == pytest.approx(50.0)


def test_work_done_alone_may_be_faster():
    both = pieces(("a", 100.0), ("b", 140.0))
    assert Forecast(both, 2).left_s(0.0) == pytest.approx(140.0)
    assert Forecast(both, 2, alone=0.5).left_s(0.0) == pytest.approx(120.0)


def test_a_training_waits_for_what_it_starts_from():
    chain = [Piece("b", 50.0, "train", "a"), Piece("a", 100.0, "train")]
    assert Forecast(chain, 2).left_s(0.0) == pytest.approx(150.0)
    assert Forecast(chain[:1], 2).left_s(0.0) == pytest.approx(50.0)  # `a` is on disk


def test_very_many_works_are_shared_evenly():
    many = [Piece(str(number), 1.0, "train") for number in range(5000)]
    assert Forecast(many, 4).left_s(0.0) == pytest.approx(1250.0)
