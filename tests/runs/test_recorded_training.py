"""One training under two seeds is not two. Logs beside their recipes are asked in tests/leaderboard/test_forged.py."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs.recorded_training import _check_seeds


def _whole(*trainings, examples=1000):
    def of(place, seed, order):
        data = {"order_sha256": order, "examples": examples, "sequences": 8}
        return SimpleNamespace(
            seed=seed, steps=4, folder=Path(f"record{place}"), record=SimpleNamespace(read=lambda _: data)
        )

    return SimpleNamespace(trainings=[of(place, *about) for place, about in enumerate(trainings)])


def test_methods_of_one_seed_read_in_one_order_and_seeds_in_their_own():
    _check_seeds(_whole((1, "a" * 64), (1, "a" * 64), (2, "b" * 64)))
    with pytest.raises(
        EnvironmentProblem, match=r"record0, seed 1, and record2, seed 2, read it in the same one \(aaaa"
    ):
        _check_seeds(_whole((1, "a" * 64), (1, "a" * 64), (2, "a" * 64)))


def test_a_few_texts_may_come_in_one_order_by_chance():
    _check_seeds(_whole((1, "a" * 64), (2, "a" * 64), examples=6))
