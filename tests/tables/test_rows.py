"""Rows of the table: each seed matched by itself, then averaged; what is incomplete is marked."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.leaderboard.entry import About
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.tables.intervals import interval
from adaptive_bench.tables.rows import Row, dial_warnings, table_rows

METRIC = "exact_match,strict-match"
SPEC = MethodSpec.parse("gateskip[gate=scalar]@paper")
KEYS = "method semantics task metric axis phase level score low high interval seed_error document_error "
KEYS += "seeds documents saved_tokens saved_core saved_net "
KEYS += "saved_prefill_tokens saved_prefill_core saved_prefill_net saved_decode_tokens saved_decode_core "
KEYS += "saved_decode_net claimed claimed_minus_executed projected_net projected_shape status timing "
KEYS += "parameters_added train_tokens train_flops target beyond_target "
KEYS += "below_target target_axis trained_without eligible shuffled_score decisions_worth decisions_low decisions_high "
KEYS += "shuffled_apart dial gap distance seconds flops_per_token bytes_per_token ms_per_token "
KEYS += "model backbone recipe "
KEYS += "task_version shots asked contents definition made_with"


def _savings(tokens: float | None) -> dict[str, Any]:
    if tokens is None:
        return dict.fromkeys(("tokens", "core", "net", "executed"))
    return {"tokens": tokens, "core": tokens / 2, "net": tokens / 2 - 0.1, "executed": tokens / 2 - 0.1}


def _evaluation(dial: float, score: float, tokens: float, metric: str = METRIC, **known: Any) -> Evaluation:
    """Saves a bit more in prefill and half in decode, unless `decode` says otherwise."""
    report = {
        "saved": _savings(tokens),
        "prefill": _savings(1.2 * tokens),
        "decode": _savings(known.pop("decode", tokens / 2)),
    }
    return Evaluation(
        "nano_math", dial, {metric: score}, 100, _savings(tokens), report, 2.0, 300, 100, 8, 0, 1234, **known
    )


def test_a_token_costs_the_dense_flops_less_the_net_saving_in_the_phase_of_the_row() -> None:
    counts = {"prefill": {"dense_macs": [30.0, 20.0], "tokens": 10}, "decode": {"dense_macs": [8.0, 0.0], "tokens": 2}}
    points = [_evaluation(0.0, 0.9, 0.0), _evaluation(0.4, 0.7, 0.4)]
    for point in points:
        point.report["counts"] = counts
    rows = table_rows(SPEC, "nano_math", [METRIC], {1: points}, (0.0, 0.05, 0.9))
    cost = {(row.axis, row.phase, row.level): row.flops_per_token for row in rows}
    assert cost["net", "all", 0.0] == pytest.approx(2 * 58 / 12)
    assert cost["net", "all", 0.05] == pytest.approx(2 * 58 / 12 * 0.95)
    assert cost["net", "prefill", 0.05] == pytest.approx(2 * 50 / 10 * 0.95)
    assert cost["net", "decode", 0.0] == pytest.approx(2 * 8 / 2)
    assert cost["net", "all", 0.9] is None
    del points[1].report["counts"]
    rows = table_rows(SPEC, "nano_math", [METRIC], {1: points}, (0.05,))
    assert all(row.flops_per_token is None for row in rows if row.axis == "net")


def _rows(
    evaluations: dict[int, list[Evaluation]], levels: tuple[float, ...], axis: str = "tokens", phase: str = "all"
) -> list[Row]:
    rows = table_rows(SPEC, "nano_math", [METRIC], evaluations, levels)
    return [row for row in rows if (row.axis, row.phase) == (axis, phase)]


def test_a_row_has_the_keys_of_the_table_and_is_plain_json() -> None:
    rows = table_rows(SPEC, "nano_math", [METRIC], {1: [_evaluation(0.0, 0.9, 0.0)]}, (0.0, 0.1))
    assert [(row.axis, row.phase, row.level) for row in rows] == [
        (axis, phase, level)
        for phase in ("all", "prefill", "decode")
        for axis in ("tokens", "core", "net")
        for level in (0.0, 0.1)
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
    assert (row.dial, row.seconds) == (pytest.approx((0.1 + 0.2) / 2), 2.0)
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


def _samples(answers: list[float], metric: str = METRIC) -> list[Sample]:
    return [Sample(doc, "", "", {}, {metric: score}, score) for doc, score in enumerate(answers)]


def test_an_interval_is_over_seeds_and_documents_where_documents_are_known() -> None:
    right = [1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]
    seed = [_evaluation(0.0, 0.75, 0.0), _evaluation(0.2, 0.25, 0.2)]
    samples = [_samples(one) for one in right]
    for seeds, levels in ((1, "documents"), (3, "seeds and documents")):
        done = dict.fromkeys(range(seeds), seed)
        found = table_rows(SPEC, "t", [METRIC], done, (0.1,), samples=dict.fromkeys(range(seeds), samples))[0]
        expected = interval([[1.0, 0.5, 0.5, 0.0]] * seeds)
        assert (found.score, found.interval, found.seeds, found.documents) == (0.5, levels, seeds, 100)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_how_far_a_level_is_from_what_was_measured_is_in_the_row() -> None:
    close = [_evaluation(saved, 1 - saved, saved) for saved in (0.0, 0.08, 0.11, 0.3)]
    far = [_evaluation(saved, 1 - saved, saved) for saved in (0.0, 0.304)]
    rows = {row.level: row for row in _rows({1: close, 2: far}, (0.0, 0.1, 0.3))}
    assert rows[0.0].distance == 0
    assert rows[0.1].distance == pytest.approx(0.204)  # of seed 2; seed 1 was measured 2 points below and 1 above
    assert rows[0.3].distance == 0  # seed 2 was measured within half a point of it, and the other end hardly counts
    alone = {row.level: row.distance for row in _rows({1: close}, (0.1, 0.2, 0.4))}
    assert alone == {0.1: pytest.approx(0.02), 0.2: pytest.approx(0.1), 0.4: None}


def test_without_documents_one_seed_has_no_interval_and_several_have_one_over_seeds() -> None:
    alone = _rows({1: [_evaluation(0.0, 0.5, 0.0)]}, (0.0,))[0]
    assert (alone.low, alone.high, alone.interval) == (None, None, "none")
    bleu = {seed: [_evaluation(0.0, 20.0 + seed, 0.0, metric="bleu,none")] for seed in (1, 2)}
    no_mean = {seed: [_samples([0.0, 1.0], "bleu,none")] for seed in bleu}
    found = table_rows(SPEC, "t", ["bleu,none"], bleu, (0.0,), samples=no_mean)[0]
    assert (found.interval, found.document_error) == ("seeds", None)
    assert found.low is not None and found.low >= 0


def test_a_share_in_percent_has_an_interval_without_bounds() -> None:
    percent = {seed: [_evaluation(0.0, 50.0 + seed, 0.0)] for seed in (1, 2)}
    (row,) = _rows(percent, (0.0,))
    assert row.low is not None and row.high is not None and row.low < 51 < 52 < row.high


def test_an_evaluation_comes_back_from_json() -> None:
    before = _evaluation(0.1, 0.8, 0.05)
    values = json.loads(json.dumps(before.to_json()))
    assert Evaluation.from_json(values) == before
    assert values["time_per_token_s"] == pytest.approx(2.0 / 400)


def test_an_older_record_comes_back_with_what_it_does_not_know_left_open() -> None:
    values = _evaluation(0.1, 0.8, 0.05, claimed=0.06).to_json()
    for name in ("claimed", "projected", "projected_shape"):
        del values[name]
    del values["report"]["prefill"], values["report"]["decode"]
    before = Evaluation.from_json(values)
    assert (before.claimed, before.projected) == (None, None)
    assert before.saved("net", "decode") is None and before.saved("net") == pytest.approx(-0.075)
    rows = table_rows(SPEC, "nano_math", [METRIC], {1: [before]}, (0.05,))
    assert {(row.axis, row.phase) for row in rows} == {("tokens", "all"), ("core", "all"), ("net", "all")}
    assert rows[0].score == 0.8 and rows[0].claimed_minus_executed is None and rows[0].saved_decode_net is None


def test_each_phase_is_matched_by_itself_with_both_phases_beside_the_row() -> None:
    evaluations = {1: [_evaluation(0.0, 1.0, 0.0), _evaluation(0.2, 0.5, 0.2)]}
    (prefill,) = _rows(evaluations, (0.12,), phase="prefill")
    (decode,) = _rows(evaluations, (0.05,), phase="decode")
    assert prefill.score == decode.score == pytest.approx(0.75)
    for row in (prefill, decode):
        found = (row.saved_tokens, row.saved_prefill_tokens, row.saved_decode_tokens)
        assert found == pytest.approx((0.1, 0.12, 0.05))
    assert _rows(evaluations, (0.12,), phase="decode")[0].status == "outside"


def test_a_task_that_writes_nothing_has_no_decode_rows() -> None:
    evaluations = {1: [_evaluation(0.0, 1.0, 0.0, decode=None), _evaluation(0.2, 0.5, 0.2, decode=None)]}
    rows = table_rows(SPEC, "nano_qa_ll", [METRIC], evaluations, (0.1,))
    assert {row.phase for row in rows} == {"all", "prefill"}
    assert {row.saved_decode_net for row in rows} == {None}


def test_what_the_dial_claims_is_an_axis_and_stands_beside_what_was_skipped() -> None:
    evaluations = {1: [_evaluation(0.0, 1.0, 0.0, claimed=0.0), _evaluation(0.2, 0.5, 0.1, claimed=0.2)]}
    (claimed,) = _rows(evaluations, (0.1,), axis="claimed")
    assert (claimed.score, claimed.saved_tokens, claimed.claimed_minus_executed) == pytest.approx((0.75, 0.05, 0.05))
    (measured,) = _rows(evaluations, (0.05,))
    assert (measured.claimed, measured.claimed_minus_executed) == pytest.approx((0.1, 0.05))
    (decode,) = _rows(evaluations, (0.025,), phase="decode")
    assert decode.claimed_minus_executed == pytest.approx(0.075)


def test_a_claim_that_is_not_kept_is_told() -> None:
    evaluations = {1: [_evaluation(0.1, 0.9, 0.08, claimed=0.1), _evaluation(0.2, 0.5, 0.12, claimed=0.2)]}
    (warning,) = dial_warnings(SPEC, "t", METRIC, evaluations, "net")
    assert "claims to skip 20.0% of the token-branches, 12.0% were" in warning
    (warning,) = dial_warnings(SPEC, "t", METRIC, evaluations, "net", phase="decode")
    assert "of decode" in warning and "6.0% were" in warning
    kept = {1: [_evaluation(0.1, 0.9, 0.06, claimed=0.1), _evaluation(0.2, 0.5, 0.16, claimed=0.2)]}
    assert dial_warnings(SPEC, "t", METRIC, kept, "net") == []
    assert dial_warnings(SPEC, "t", METRIC, {1: [_evaluation(0.1, 0.9, 0.08)]}, "net") == []


def test_a_projection_is_a_column_with_its_shape_and_an_axis_of_its_own() -> None:
    def one(tokens: float) -> Evaluation:
        projected = {"all": 3 * tokens, "prefill": 4 * tokens, "decode": None}
        return _evaluation(tokens, 1 - tokens, tokens, projected=projected, projected_shape="big")

    evaluations = {1: [one(0.0), one(0.2)]}
    (row,) = _rows(evaluations, (0.3,), axis="projected")
    assert (row.score, row.projected_net, row.saved_tokens) == pytest.approx((0.9, 0.3, 0.1))
    assert row.projected_shape == "big"
    (prefill,) = _rows(evaluations, (0.12,), phase="prefill")
    assert prefill.projected_net == pytest.approx(0.4)


def test_what_is_known_of_the_training_is_in_every_row_and_marks_levels_beyond_it() -> None:
    about = About(
        parameters_added=12,
        train_tokens=3400,
        train_flops=5e9,
        trained_for={"net": 0.1, "tokens": 0.25},
        target_axis="net",
    )
    evaluations = {1: [_evaluation(0.0, 1.0, 0.2), _evaluation(0.4, 0.5, 0.6)]}
    rows = table_rows(SPEC, "t", [METRIC], evaluations, (0.05, 0.1, 0.2), about=about)
    assert {(row.parameters_added, row.train_tokens, row.train_flops) for row in rows} == {(12, 3400, 5e9)}
    beyond = {(row.axis, row.level): row.beyond_target for row in rows if row.phase == "all"}
    assert [beyond["net", level] for level in (0.05, 0.1, 0.2)] == [False, False, True]
    assert [beyond["tokens", level] for level in (0.05, 0.1, 0.2)] == [False, False, False]
    below = {(row.axis, row.level): row.below_target for row in rows if row.phase == "all"}
    assert [below["net", level] for level in (0.05, 0.1, 0.2)] == [False, False, False]
    assert [below["tokens", level] for level in (0.05, 0.1, 0.2)] == [True, True, False]
    assert {row.target_axis for row in rows} == {"net"}
    assert {row.beyond_target for row in rows if row.axis == "core" or row.phase != "all"} == {None}


def test_rows_of_an_unreached_level_have_every_measured_field_open() -> None:
    (row,) = _rows({1: [_evaluation(0.0, 0.8, 0.0, claimed=0.0)]}, (0.1,))
    measured = [field.name for field in fields(Row) if field.name.startswith(("saved_", "claimed", "projected_net"))]
    assert len(measured) == 12 and {getattr(row, name) for name in measured} == {None}


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.8)), min_size=1, max_size=6),
    st.sampled_from(["tokens", "core", "net"]),
    st.sampled_from(["all", "prefill", "decode"]),
    st.floats(0, 0.5),
)
def test_a_row_has_a_score_exactly_where_its_own_axis_and_phase_were_reached(
    measured: list[tuple[float, float]], axis: Any, phase: Any, level: float
) -> None:
    evaluations = [_evaluation(tokens, score, tokens) for score, tokens in measured]
    (row,) = _rows({1: evaluations}, (level,), axis=axis, phase=phase)
    savings = [one.saved(axis, phase) or 0.0 for one in evaluations]
    if level > 1e-6:
        reached = min(savings) - 1e-9 <= level <= max(savings) + 1e-9
        assert (row.score is not None) == reached
    if row.score is not None and level > 0.005:
        assert getattr(row, f"saved_{axis}" if phase == "all" else f"saved_{phase}_{axis}") == pytest.approx(level)
