"""The one schedule of training targets."""

import pytest

from adaptive_bench.method import annealed
from adaptive_bench.method.dial import REACHED_AT


def test_a_target_is_reached_before_the_end_and_held():
    """Golden: linear from the first step, at its end after 70 % of the training, exactly there ever after."""
    found = [annealed(1.0, 0.8, step, 11) for step in range(1, 15)]
    assert REACHED_AT == 0.7
    assert found[0] == 1.0 and found[7:] == [0.8] * 7
    assert found[:8] == pytest.approx([1.0 - 0.2 * step / 7 for step in range(8)])


def test_directions_and_single_steps():
    assert annealed(0.0, 0.4, 4, 11) == pytest.approx(0.4 * 3 / 7)
    assert [annealed(1.0, 0.5, step, 1) for step in (1, 2)] == [1.0, 0.5]
    assert [annealed(1.0, 0.5, step, 2) for step in (1, 2)] == [1.0, 0.5]
