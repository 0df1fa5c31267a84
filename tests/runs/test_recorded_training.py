"""One training under two seeds is not two. Logs beside their recipes are asked in tests/leaderboard/test_forged.py."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs.recorded_training import _check_seeds, _different


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


@pytest.mark.parametrize(
    ("priced", "found"),
    [
        ({"axis": "net", "saving": 0.1}, []),
        ({"axis": "net", "saving": 0.3}, [("target.saving", 0.1, 0.3, "target.json")]),
        ({"axis": "tokens", "saving": 0.1}, [("target.axis", "net", "tokens", "target.json")]),
        (None, [("target.axis", "net", None, "target.json"), ("target.saving", 0.1, None, "target.json")]),
    ],
)
def test_a_target_is_the_one_that_was_priced(tmp_path, priced, found):
    (tmp_path / "train.jsonl").write_text('{"step": 1, "lr": 0.01, "tokens": 5}\n')
    recipe = {"decay": "cosine", "warmup_steps": 0, "learning_rate": 0.01, "batch_size": 1}
    content = {"recipe": recipe, "target": {"axis": "net", "saving": 0.1, "text": "0" * 16}}
    record = SimpleNamespace(read={"target.json": priced, "data.json": {}}.get)
    whole = SimpleNamespace(steps=1, content=content, folder=tmp_path, record=record)
    assert [one for one in _different(whole) if one[1] != one[2]] == found
