"""Rows of a table: every seed at its measured point that is nearest to the level, then their mean; and what to say."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from swept_board import METRIC, sweep_of

from adaptive_bench.store.evaluation import Evaluation
from adaptive_bench.store.measured import Documents, MeasuredPoint, MeasuredTraining, TimeCurve
from adaptive_bench.tables.comparison import paired_difference
from adaptive_bench.tables.intervals import interval
from adaptive_bench.tables.matching import flaws, interpolated, meets, nearest
from adaptive_bench.tables.outcome import about_training, answers_of, rows_of

COSTS = {"tokens": 1000.0, "flops": 1e9, "parameters_added": 12.0}


def _row(*sweeps, axis="net", phase="all", level=None):
    rows, _ = rows_of(sweeps, axis, phase)
    (row,) = [one for one in rows if level is None or one.level == level]
    return row


def test_each_seed_answers_with_its_own_nearest_point_and_the_row_has_their_mean():
    """Seeds 1 and 2 were measured at .09 and .12: by hand (.75 + .5) / 2 at (.09 + .12) / 2."""
    first = sweep_of([(0.0, [1, 1, 1, 1], 0.0), (0.1, [1, 1, 1, 0], 0.09), (0.3, [0, 0, 0, 0], 0.3)])
    second = sweep_of([(0.0, [1, 1, 1, 1], 0.0), (0.2, [1, 1, 0, 0], 0.12)], seed=2)
    row = _row(first, second)
    assert (row.score, row.saved, row.saved_net, row.saved_tokens) == pytest.approx((0.625, 0.105, 0.105, 0.105))
    assert (row.dial, row.seconds, row.seeds, row.documents) == (pytest.approx(1.5), 2.0, 2, 4)
    expected = interval([[1, 1, 1, 0], [1, 1, 0, 0]])
    assert (row.low, row.high, row.interval) == (expected.low, expected.high, "seeds and documents")
    assert (row.seed_error, row.document_error) == (expected.seed_error, expected.document_error)


@pytest.mark.parametrize(
    ("savings", "status"), [((0.1, 0.11), "ok"), ((0.1, 0.12), "nearest"), ((0.1, None), "partial")]
)
def test_a_level_is_met_where_every_seed_meets_it(savings, status):
    sweeps = [
        sweep_of([] if saved is None else [(0.1, [1, 0], saved)], seed=seed) for seed, saved in enumerate(savings, 1)
    ]
    row = _row(*sweeps)
    assert (row.status, row.seeds, row.score) == (status, 1 if None in savings else 2, 0.5)


def test_what_was_not_measured_on_the_axis_has_a_row_without_a_score():
    unknown = sweep_of([(0.0, [1, 1], {"net": 0.0}), (0.1, [1, 1], {"net": 0.1})])
    row, (said,) = _row(unknown, axis="claimed"), rows_of([unknown], "claimed", "all")[1]
    assert (row.status, row.score, row.low, row.saved, row.seeds) == ("missing", None, None, None, 0)
    assert said == "some_task: the saving on the axis claimed is not known, so there is no table by it."
    assert rows_of([sweep_of([])], "net", "all") == ([], [])


def test_rows_are_of_every_metric_and_level_on_the_axis_of_the_run_alone():
    sweep = sweep_of([(0.0, [1, 1], 0.0), (0.2, [1, 0], 0.2)], "gateskip[gate=scalar]@paper", levels=(0.2, 0.1))
    points = [replace(one, scores=one.scores | {"f1,none": 0.3}) for one in sweep.points]
    rows, _ = rows_of([replace(sweep, points=points)], "net", "all")
    assert [(row.metric, row.level) for row in rows] == [(m, at) for m in (METRIC, "f1,none") for at in (0.1, 0.2)]
    assert {(row.axis, row.phase, row.method, row.semantics) for row in rows} == {
        ("net", "all", "gateskip[gate=scalar]", "paper")
    }
    assert rows[2].score == 0.3 and (rows[2].low, rows[2].interval) == (None, "none")  # no documents, one seed
    assert json.loads(json.dumps(rows[0].to_json())) == rows[0].to_json()


def test_a_level_is_answered_by_the_training_that_was_meant_for_it():
    aims = {target: {"axis": "net", "saving": target} for target in (0.1, 0.25)}
    sweeps = [
        sweep_of([(0.0, [1, 1], 0.0), (0.1, [score] * 2, 0.1), (0.2, [score] * 2, 0.25)],
                 target=target, aim=aims[target], levels=(0.1, 0.17, 0.18, 0.25))
        for target, score in ((0.1, 1), (0.25, 0))
    ]  # fmt: skip
    rows = {row.level: row for row in rows_of(sweeps, "net", "all")[0]}
    assert {level: row.target for level, row in rows.items()} == {0.1: 0.1, 0.17: 0.1, 0.18: 0.25, 0.25: 0.25}
    assert {level: row.score for level, row in rows.items()} == {0.1: 1.0, 0.17: 1.0, 0.18: 0.0, 0.25: 0.0}
    assert [row.score for row in rows_of([replace(one, target=None) for one in sweeps[:1]], "net", "all")[0]] == [1] * 4


def test_documents_for_choosing_targets_are_in_no_row():
    test = sweep_of([(0.1, [1, 0], 0.1)])
    assert _row(test, sweep_of([(0.1, [1, 1], 0.1)], split="validation")).score == 0.5


def test_a_phase_is_matched_by_its_own_saving():
    def saved(all_of_it, decode):
        found = {"tokens": all_of_it, "net": all_of_it, "prefill_net": 2 * all_of_it, "decode_net": decode}
        return {name: value for name, value in found.items() if value is not None}

    points = [(0.0, [1, 1], saved(0.0, -0.1)), (0.2, [1, 0], saved(0.05, 0.1)), (0.4, [0, 0], saved(0.1, 0.3))]
    row = _row(sweep_of(points), phase="decode")
    assert (row.score, row.saved, row.saved_net, row.saved_prefill_net, row.saved_decode_net) == (
        0.5, 0.1, 0.05, 0.1, 0.1,
    )  # fmt: skip
    silent = sweep_of([(asked, scores, saved(asked, None)) for asked, scores, _ in points])
    assert _row(silent, phase="decode").status == "missing" and _row(silent).saved_decode_net is None


def test_the_time_saved_at_a_point_ends_where_its_timing_ends():
    curve = TimeCurve.of([(0.0, -0.1), (0.5, 0.4)])
    points = [(0.0, [1, 1], 0.0), (0.2, [1, 0], 0.21), (0.6, [0, 0], 0.6)]
    times = [one["times"] for one in answers_of(sweep_of(points, curves={"batch 1": curve}))["points"]]
    assert times == [{"batch 1": pytest.approx(-0.1)}, {"batch 1": pytest.approx(-0.1 + 0.21)}, {}]


def test_what_a_dial_claims_stands_beside_what_was_skipped_and_a_broken_claim_is_told():
    points = [(0.1, [1, 1], {"tokens": 0.08, "net": 0.05, "claimed": 0.1}),
              (0.2, [1, 0], {"tokens": 0.12, "net": 0.1, "claimed": 0.2})]  # fmt: skip
    rows, (said,) = rows_of([sweep_of(points)], "net", "all")
    assert (rows[0].claimed, rows[0].claimed_minus_executed) == (0.2, pytest.approx(0.08))
    assert "claims to skip 20.0% of the token-branches, 12.0% were" in said
    assert rows_of([sweep_of(points[:1])], "net", "all")[1] == []
    assert _row(sweep_of(points), axis="claimed").score == 1.0


def test_a_dial_that_moves_nothing_is_inert_and_told():
    rows, (said,) = rows_of([sweep_of([(asked, [1, 0], 0.1) for asked in (0.0, 0.1)])], "net", "all")
    assert rows[0].status == "inert" and rows[0].score == 0.5 and "moves nothing" in said
    back = sweep_of([(0.0, [1, 0], 0.0), (0.1, [1, 0], 0.3), (0.2, [1, 0], 0.1)])
    assert "does not follow the dial" in rows_of([back], "net", "all")[1][0]


def test_a_share_in_percent_has_an_interval_without_bounds_and_a_pooled_metric_none_beyond_its_own():
    percent = [sweep_of([(0.1, [50.0 + seed, 52.0 + seed], 0.1)], seed=seed) for seed in (1, 2)]
    row = _row(*percent)
    assert row.low is not None and row.high is not None and row.low < 51 < 54 < row.high
    text = sweep_of([(0.1, [1.0, 1.0], 0.1)], metric="bits_per_byte,none")
    # 2 bits of 1 byte and 0 of 9: .2 a byte, and documents whose linearised values lie below 0.
    documents = Documents((0, 1), {}, np.array([-2 * np.log(2), 0.0]), np.array([1.0, 9.0]))
    row = _row(replace(text, points=[replace(text.points[0], scores={"bits_per_byte,none": 0.2}, documents=documents)]))
    assert row.score == 0.2 and row.low == 0.0 and row.high is not None and row.high > 0.2


def test_what_trainings_cost_includes_those_they_start_from():
    base = MeasuredTraining("base", "base", 1, cost={"tokens": 500.0, "flops": 2e9, "parameters_added": 99.0})
    aim = {"axis": "net", "saving": 0.15}
    row = _row(sweep_of([(0.1, [1, 0], 0.1)], base=base, cost=COSTS, aim=aim, flops={"all": 7.0}))
    assert (row.parameters_added, row.train_tokens, row.train_flops, row.target) == (12, 1500, 3e9, 0.15)
    assert row.flops_per_token == 7.0
    unknown = MeasuredTraining("x", "x", 1, base=MeasuredTraining("y", "y", 1), cost=COSTS)
    assert about_training([unknown, MeasuredTraining("z", "z", 2, cost=COSTS)]) == {
        "parameters_added": None, "train_tokens": None, "train_flops": None, "target": None,
    }  # fmt: skip


def test_an_older_evaluation_leaves_open_what_it_does_not_know():
    saved = {"tokens": 0.05, "core": 0.025, "net": -0.075, "executed": -0.075}
    before = Evaluation("nano_math", 0.1, {METRIC: 0.8}, 100, saved, {"saved": saved}, 2.0, 300, 100, 8, 0, 1234)
    again = Evaluation.from_json(json.loads(json.dumps(before.to_json())))
    assert again == before and (again.claimed, again.projected, again.saved("net", "decode")) == (None, None, None)
    point = MeasuredPoint.of(0.1, again, [METRIC], [])
    assert point.savings == {"tokens": 0.05, "core": 0.025, "net": -0.075}


OWN = {1: [(0.0, [1, 1, 1, 1], 0.0), (0.2, [1, 1, 1, 0], 0.1)], 2: [(0.0, [1, 1, 1, 0], 0.0), (0.3, [1, 1, 0, 0], 0.1)]}
CONTROL = {1: [(0.0, [1] * 4, 0.1), (0.2, [0] * 4, 0.07)], 2: [(0.0, [1] * 4, 0.1), (0.3, [1, 0, 0, 0], 0.11)]}


def both(own=OWN, control=CONTROL, metric=METRIC):
    sweeps = [sweep_of(points, seed=seed, metric=metric) for seed, points in own.items()]
    controls = [sweep_of(points, seed=seed, metric=metric, variant="shuffled") for seed, points in control.items()]
    return _row(*sweeps, *controls)


def test_the_control_with_other_tokens_decisions_is_taken_at_the_same_asked_values():
    """Not at the same saving: its own points at .1 are those of other dial values."""
    row = both()
    wanted = paired_difference(np.array([[1, 1, 1, 0], [1, 1, 0, 0]]), np.array([[0] * 4, [1, 0, 0, 0]]))
    assert (row.shuffled_score, row.decisions_worth) == (0.125, pytest.approx(0.625 - 0.125))
    assert (row.decisions_low, row.decisions_high) == (wanted.low, wanted.high)
    assert row.shuffled_apart == pytest.approx(-0.03)
    assert "differ from the method's own by -3.0 points" in rows_of(
        [*(sweep_of(OWN[seed], seed=seed) for seed in OWN),
         *(sweep_of(CONTROL[seed], seed=seed, variant="shuffled") for seed in OWN)], "net", "all",
    )[1][0]  # fmt: skip


@pytest.mark.parametrize("control", [{}, {1: CONTROL[1]}, {1: CONTROL[1], 2: CONTROL[2][:1]}, {3: CONTROL[1]}])
def test_without_the_control_of_a_seed_nothing_is_said_of_decisions(control):
    row = both(control=control)
    assert row.score == 0.625 and row.shuffled_score is None and row.decisions_worth is None


@pytest.mark.parametrize(("metric", "better", "worse"), [("word_perplexity,none", 2, 9), (METRIC, 1, 0)])
def test_decisions_that_help_are_worth_more_than_nothing_whichever_way_the_metric_is_better(metric, better, worse):
    row = both({1: [(0.1, [better], 0.1)]}, {1: [(0.1, [worse], 0.1)]}, metric)
    assert row.decisions_worth == abs(better - worse) and row.decisions_low is None


@given(
    st.lists(st.lists(st.tuples(st.floats(0, 0.5), st.integers(0, 4)), min_size=1, max_size=5), min_size=1, max_size=3),
    st.sampled_from([0.05, 0.1, 0.25]),
)
def test_no_row_has_another_saving_or_score_than_the_means_of_measured_ones(measured, level):
    sweeps = [
        sweep_of(
            [(place / 10, [1] * hits + [0] * (4 - hits), saved) for place, (saved, hits) in enumerate(points)],
            seed=seed, levels=(level,),
        )
        for seed, points in enumerate(measured)
    ]  # fmt: skip
    row = _row(*sweeps)
    near = [min(points, key=lambda one: (round(abs(one[0] - level), 9), -one[0])) for points in measured]
    assert row.saved == pytest.approx(np.mean([saved for saved, _ in near]))
    assert row.score == pytest.approx(np.mean([hits / 4 for _, hits in near]))


# A level is answered by the measured point that is nearest to it, as it was measured.


@pytest.mark.parametrize(
    ("saving", "met"),
    [(0.15, True), (0.16, True), (0.14, True), (0.1601, False), (0.1399, False), (0.0, False)],
)
def test_a_level_is_met_within_a_point_of_saving(saving, met):
    assert meets(saving, 0.15) == met


def test_of_two_points_that_are_as_near_the_one_that_saves_more_answers():
    assert nearest([None, 0.05, 0.15, 0.15, 0.3], 0.1) == 2 and nearest([None], 0.1) is None


def test_a_dial_that_moves_nothing_is_inert():
    flat = [(dial, 0.0005 * dial) for dial in (0.0, 0.1, 0.2)]
    unknown = (0.3, None)  # of older records
    assert flaws(flat) == flaws([*flat, unknown]) == ("inert",)
    assert flaws(flat[:1]) == ()  # without a dial
    assert flaws([(0.0, 0.0), (1.0, 0.02)]) == ()


def test_a_saving_that_goes_up_and_down_with_the_dial_is_told():
    assert flaws([(0.0, 0.0), (0.1, 0.3), (0.2, 0.1)]) == ("non-monotone",)
    assert flaws((dial, 1 - dial) for dial in (0.7, 0.8, 1.0)) == ()


def test_the_papers_tables_are_read_on_the_line_between_two_points():
    """By hand: .2 lies half way between .1 and .3, whose scores are .8 and .2; .25 three quarters of the way."""
    savings, scores = [0.0, 0.3, 0.1], np.array([1.0, 0.2, 0.8])
    assert interpolated(savings, scores, 0.2) == pytest.approx(0.5)
    assert interpolated(savings, scores, 0.25) == pytest.approx(0.35)
    both = interpolated(savings, np.array([[1.0, 4.0], [0.2, 2.0], [0.8, 3.0]]), 0.2)
    assert both is not None and both.tolist() == pytest.approx([0.5, 2.5])
    assert interpolated([0.1, 0.1, 0.2], np.array([0.4, 0.6, 0.0]), 0.1) == pytest.approx(0.5)  # their mean
    assert interpolated([None, 0.1], np.array([0.9, 0.5]), 0.1) == 0.5
    for outside in (-0.01, 0.301):
        assert interpolated(savings, scores, outside) is None
    assert interpolated([], np.empty(0), 0.1) is None


@pytest.mark.parametrize(("lowest", "there"), [(0.0, True), (0.005, True), (0.0051, False), (-0.001, True)])
def test_in_the_papers_tables_nothing_saved_is_next_to_nothing_saved(lowest: float, there: bool) -> None:
    assert (interpolated([lowest, 0.5], np.array([0.9, 0.1]), 0.0) is not None) == there
