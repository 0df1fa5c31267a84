"""Rows of the table: each seed matched by itself, then averaged; what is incomplete is marked."""

from __future__ import annotations

import json

import pytest

from adaptive_bench.evaluation.record import Evaluation
from adaptive_bench.evaluation.rows import Row, dial_warnings, table_rows
from adaptive_bench.spec import MethodSpec

METRIC = "exact_match,strict-match"
SPEC = MethodSpec.parse("gateskip[gate=scalar]@paper")
KEYS = "method semantics task metric axis level score low high seeds saved_tokens saved_core saved_net status timing"


def _evaluation(dial: float, score: float, tokens: float, metric: str = METRIC) -> Evaluation:
    savings = {"tokens": tokens, "core": tokens / 2, "net": tokens / 2 - 0.1, "executed": tokens / 2 - 0.1}
    return Evaluation("nano_math", dial, {metric: score}, 100, savings, {"saved": savings}, 2.0, 300, 100, 8, 0, 1234)


def _rows(evaluations: dict[int, list[Evaluation]], levels: tuple[float, ...], axis: str = "tokens") -> list[Row]:
    return [row for row in table_rows(SPEC, "nano_math", [METRIC], evaluations, levels) if row.axis == axis]


def test_a_row_has_the_keys_of_the_table_and_is_plain_json() -> None:
    rows = table_rows(SPEC, "nano_math", [METRIC], {1: [_evaluation(0.0, 0.9, 0.0)]}, (0.0, 0.1))
    assert [(row.axis, row.level) for row in rows] == [
        (axis, level) for axis in ("tokens", "core", "net") for level in (0.0, 0.1)
    ]
    first = json.loads(json.dumps(rows[0].to_json()))
    assert list(first) == KEYS.split()
    assert (first["method"], first["semantics"]) == ("gateskip[gate=scalar]", "paper")


def test_seeds_are_matched_first_and_then_averaged_with_their_spread() -> None:
    evaluations = {
        1: [_evaluation(0.0, 0.8, 0.0), _evaluation(0.2, 0.4, 0.2)],
        2: [_evaluation(0.0, 0.6, 0.0), _evaluation(0.2, 0.5, 0.1)],
    }
    (row,) = _rows(evaluations, (0.1,))
    assert row.score == pytest.approx((0.6 + 0.5) / 2)
    assert row.saved_tokens == pytest.approx(0.1)
    assert (row.seeds, row.status) == (2, "ok")
    assert row.low is not None and row.low < 0.5 < 0.6 < row.high  # type: ignore[operator]


def test_a_level_that_no_seed_reached_has_no_score() -> None:
    (row,) = _rows({1: [_evaluation(0.0, 0.8, 0.0)], 2: [_evaluation(0.0, 0.8, 0.0)]}, (0.1,))
    assert (row.score, row.low, row.high, row.seeds, row.saved_net, row.status) == (
        None,
        None,
        None,
        0,
        None,
        "outside",
    )


def test_a_level_that_only_some_seeds_reached_is_partial() -> None:
    reaching = [_evaluation(0.0, 0.8, 0.0), _evaluation(0.2, 0.4, 0.2)]
    for other in ([_evaluation(0.0, 0.7, 0.0)], []):
        (row,) = _rows({1: reaching, 2: other}, (0.2,))
        assert (row.score, row.seeds, row.status) == (0.4, 1, "partial")


def test_a_dial_that_moves_nothing_is_marked_and_told() -> None:
    evaluations = {1: [_evaluation(dial, 0.3, 0.0) for dial in (0.0, 0.1, 0.2)]}
    assert [row.status for row in _rows(evaluations, (0.0, 0.1))] == ["inert", "outside"]
    (warning,) = dial_warnings(SPEC, "nano_math", METRIC, evaluations, "net")
    assert str(SPEC) in warning and "moves nothing" in warning
    assert dial_warnings(SPEC, "nano_math", METRIC, {1: [_evaluation(0.0, 0.3, 0.0)]}, "net") == []


def test_one_seed_of_a_share_has_an_interval_and_of_another_metric_has_none() -> None:
    assert _rows({1: [_evaluation(0.0, 0.5, 0.0)]}, (0.0,))[0].low == pytest.approx(0.40383, abs=1e-5)
    bleu = {1: [_evaluation(0.0, 0.5, 0.0, metric="bleu,none")]}
    assert table_rows(SPEC, "t", ["bleu,none"], bleu, (0.0,))[0].low is None


def test_an_evaluation_comes_back_from_json() -> None:
    before = _evaluation(0.1, 0.8, 0.05)
    values = json.loads(json.dumps(before.to_json()))
    assert Evaluation.from_json(values) == before
    assert values["time_per_token_s"] == pytest.approx(2.0 / 400)
