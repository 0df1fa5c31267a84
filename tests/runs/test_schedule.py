"""The bar of a run is the clock: its total is how long the processes take together, whatever waits for whatever."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.runs.chains import Chain, Measuring, Training
from adaptive_bench.runs.schedule import on_the_clock


@dataclass(frozen=True)
class FakeCell:
    folder: Path
    base: "FakeCell | None" = None
    finished: bool = False


def chain(name, training, *measurings, base=None):
    """A chain of so many seconds; no training where that is `None`."""
    cell = FakeCell(Path(name), base)
    trained = None if training is None else Training(cell, None, training)
    return Chain(trained, tuple(Measuring((), seconds, seconds / 4, seconds / 8) for seconds in measurings))


def seconds(chains):
    return [[work.seconds for work in one.works] for one in chains]


def total(chains):
    return sum(map(sum, seconds(chains)))


def test_alone_it_is_the_sum():
    chains = [chain("a", 100.0, 10.0, 20.0), chain("b", None, 5.0)]
    assert seconds(on_the_clock(chains, 1)) == seconds(chains)


def test_what_is_done_at_once_counts_half_and_what_is_left_alone_counts_whole():
    found = on_the_clock([chain("a", 100.0), chain("b", 140.0)], 2)
    assert seconds(found) == [[50.0], [50.0 + 40.0]]
    faster = on_the_clock([chain("a", 100.0), chain("b", 140.0)], 2, alone=0.5)
    assert seconds(faster) == [[50.0], [50.0 + 20.0]]


def test_a_measuring_comes_after_its_training_and_moves_by_its_points():
    (found,) = on_the_clock([chain("a", 100.0, 40.0)], 2)
    assert seconds([found]) == [[100.0, 40.0]]
    (work,) = on_the_clock([chain("a", 100.0, 40.0), chain("b", 140.0)], 2)[0].measurings
    assert (work.seconds, work.point_s, work.calibration_s) == (20.0, 5.0, 2.5)


def test_a_training_waits_for_what_it_starts_from():
    base = FakeCell(Path("a"))
    assert total(on_the_clock([chain("b", 50.0, base=base), chain("a", 100.0)], 2)) == pytest.approx(150.0)
    assert total(on_the_clock([chain("b", 50.0, base=FakeCell(Path("elsewhere")))], 2)) == pytest.approx(50.0)


TIMES = st.floats(0, 100)


@given(st.lists(st.tuples(st.none() | TIMES, st.lists(TIMES, max_size=3)), max_size=6), st.integers(1, 4))
def test_it_lies_between_even_sharing_and_one_after_the_other(shapes, jobs):
    chains = [chain(str(number), training, *measurings) for number, (training, measurings) in enumerate(shapes)]
    found = total(on_the_clock(chains, jobs))
    assert total(chains) / jobs - 1e-6 <= found <= total(chains) + 1e-6
    longest = max((sum(map(sum, seconds([one]))) for one in chains), default=0.0)
    if len(chains) == 1 and len(chains[0].measurings) <= 1:
        assert found == pytest.approx(longest)
