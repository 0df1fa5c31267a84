"""The bar of a whole run moves with the work, and never past the share of a piece of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.progress import Meter, SilentReporter
from adaptive_bench.runs.workers.overall import Ration, RationedReporter, SweepsReporter, SweepTime


class Bar(Meter):
    def __init__(self):
        self.moves = []

    def advance(self, units=1, **info):
        self.moves.append(units)

    def end(self): ...


def test_every_step_of_a_training_moves_the_bar():
    bar = Bar()
    ration = Ration(bar, 60.0)
    with RationedReporter(SilentReporter(), ration, 60.0).task("seed 1: train mod", 30) as meter:
        for _ in range(30):
            meter.advance(1, loss=0.5)
    ration.finish()
    assert bar.moves == pytest.approx([2.0] * 30)


def test_steps_done_before_a_resume_do_not_move_it():
    bar = Bar()
    reporter = RationedReporter(SilentReporter(), Ration(bar, 10.0), 10.0, done=20)
    with reporter.task("train mod", 30) as meter:
        meter.advance(20)
        meter.advance(1)
    assert bar.moves == pytest.approx([1.0])


def test_a_calibration_has_a_weight_of_its_own():
    bar = Bar()
    reporter = RationedReporter(SilentReporter(), Ration(bar, 100.0), 8.0, calibration_s=3.0)
    reporter.task("seed 1: calibrate mod", 2).advance(1)
    reporter.task("nano_math, mod, capacity 0.5", 4).advance(2)
    assert bar.moves == pytest.approx([3.0, 4.0])


def test_what_a_sweep_leaves_is_spent_when_the_next_begins():
    bar = Bar()
    shares = [SweepTime("nano_math", 30.0, 8.0, 2.0), SweepTime("nano_qa", 20.0, 4.0, 1.0)]
    reporter = SweepsReporter(SilentReporter(), bar, shares)
    reporter.task("seed 1: calibrate mod", 2).advance(2)
    reporter.task("seed 1: nano_math, mod, capacity 0.5", 4).advance(4)
    assert bar.moves == [4.0, 8.0]
    reporter.task("seed 1: calibrate mod", 1).advance(1)  # a point that was added
    assert bar.moves == [4.0, 8.0, 2.0]
    reporter.task("seed 1: calibrate mod", 2).advance(1)
    assert bar.moves == [4.0, 8.0, 2.0, 16.0, 1.0]
    reporter.task("seed 1: nano_qa, mod, capacity 0.5", 2).advance(1)
    reporter.finish()
    assert bar.moves == [4.0, 8.0, 2.0, 16.0, 1.0, 2.0, 17.0]


def test_a_sweep_without_calibration_begins_with_its_task():
    bar = Bar()
    reporter = SweepsReporter(SilentReporter(), bar, [SweepTime("a", 3.0, 1.0, 0.0), SweepTime("b", 5.0, 1.0, 0.0)])
    for task in ("a", "a", "b"):
        reporter.task(f"{task}, dense, level 0", 1).advance(1)
    assert bar.moves == [1.0, 1.0, 1.0, 1.0]


@given(st.lists(st.floats(0, 50), max_size=30), st.floats(0, 100))
def test_whatever_the_work_does_its_share_is_spent_exactly(moves, seconds):
    bar = Bar()
    ration = Ration(bar, seconds)
    for move in moves:
        ration.spend(move)
        assert sum(bar.moves) <= seconds + 1e-9
    ration.finish()
    assert sum(bar.moves) == pytest.approx(seconds)
