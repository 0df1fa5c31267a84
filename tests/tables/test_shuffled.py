"""What decisions are worth: a method beside its control, each read off at the same saving, over what both have."""

import numpy as np
import pytest

from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.tables.comparison import paired_difference
from adaptive_bench.tables.rows import table_rows
from adaptive_bench.tables.shuffled import SeedPoints, savings_apart, with_control

METRIC = "exact_match,strict-match"
SPEC = MethodSpec("gateskip")


def point(dial, answers, saved, metric=METRIC):
    """A measured point with one score for each document, and its documents."""
    savings = {"tokens": saved, "core": saved, "net": saved, "executed": saved}
    report = {"saved": savings, "prefill": savings, "decode": savings}
    score = float(np.mean(answers))
    found = Evaluation("some_task", dial, {metric: score}, len(answers), savings, report, 1.0, 30, 10, 8, 0, 1234)
    return found, [Sample(doc, "", "", {}, {metric: float(one)}, float(one)) for doc, one in enumerate(answers)]


def side(seeds):
    """`{seed: [(asked, answers, saved), ...]}` as `with_control` takes it."""
    found = {}
    for seed, points in seeds.items():
        measured = [point(asked, answers, saved) for asked, answers, saved in points]
        found[seed] = SeedPoints([asked for asked, *_ in points], *map(list, zip(*measured, strict=True)))
    return found


def rows_of(own, levels=(0.0, 0.1), metric=METRIC):
    done = {seed: one.evaluations for seed, one in own.items()}
    samples = {seed: one.samples for seed, one in own.items()}
    return table_rows(SPEC, "some_task", [metric], done, levels, samples=samples)


def at(rows, level, axis="net"):
    (row,) = (row for row in rows if (row.axis, row.phase, row.level) == (axis, "all", level))
    return row


OWN = {1: [(0.0, [1, 1, 1, 1], 0.0), (0.2, [1, 1, 1, 0], 0.2)], 2: [(0.0, [1, 1, 1, 0], 0.0), (0.2, [1, 1, 0, 0], 0.2)]}
CONTROL = {
    1: [(0.0, [1, 1, 1, 1], 0.0), (0.2, [0, 0, 0, 0], 0.2)],
    2: [(0.0, [1, 1, 1, 0], 0.0), (0.2, [1, 0, 0, 0], 0.2)],
}


def test_both_are_read_off_at_the_level_and_compared_document_by_document():
    own, control = side(OWN), side(CONTROL)
    rows = with_control(rows_of(own), own, control)
    first = np.array([[1, 1, 1, 0.5], [1, 1, 0.5, 0]])
    second = np.array([[0.5, 0.5, 0.5, 0.5], [1, 0.5, 0.5, 0]])
    wanted, row = paired_difference(first, second), at(rows, 0.1)
    assert row.shuffled_score == pytest.approx(second.mean())
    assert (row.decisions_worth, row.decisions_low, row.decisions_high) == pytest.approx(
        (wanted.difference, wanted.low, wanted.high)
    )
    assert row.shuffled_apart == 0 and at(rows, 0.0).decisions_worth == 0
    assert all(row.decisions_worth is not None for row in rows if row.score is not None)


def test_the_control_is_read_off_at_its_own_saving():
    """It saves less at the same dial value: its score at the level is that of a larger one."""
    own = side({1: [(0.0, [1, 1], 0.0), (0.1, [1, 1], 0.1)]})
    control = side({1: [(0.0, [1, 1], 0.0), (0.1, [1, 0], 0.05), (0.2, [0, 0], 0.1)]})
    row = at(with_control(rows_of(own), own, control), 0.1)
    assert (row.shuffled_score, row.decisions_worth) == (0.0, 1.0)
    assert row.shuffled_apart == pytest.approx(-0.05)  # at the dial value the method's own score is of
    assert savings_apart(own[1], control[1]) == pytest.approx({0.0: 0.0, 0.1: -0.05})


def test_a_control_that_lacks_a_dial_value_of_the_method_is_not_taken_for_equal():
    """Of the two points a score is read off, the control has one: how far they are apart at the other is not known."""
    own = side({1: [(0.0, [1, 1], 0.0), (0.1, [1, 1], 0.08), (0.2, [1, 0], 0.16)]})
    some = [(0.0, [1, 1], 0.0), (0.1, [1, 0], 0.08), (0.3, [0, 0], 0.2)]
    rows = with_control(rows_of(own, (0.0, 0.05, 0.1)), own, side({1: some}))
    found = {level: at(rows, level) for level in (0.0, 0.05, 0.1)}
    assert all(row.decisions_worth is not None for row in found.values())
    assert found[0.0].shuffled_apart == found[0.05].shuffled_apart == 0 and found[0.1].shuffled_apart is None


def test_every_seed_behind_a_score_needs_its_control_at_the_level():
    """A difference over other seeds than the score's would not be the score's less the control's."""
    own, short = side(OWN), [(0.0, [1, 1, 1, 1], 0.0), (0.2, [0, 0, 0, 0], 0.05)]
    for control in ({1: short, 2: CONTROL[2]}, {1: CONTROL[1]}, {3: OWN[1]}):
        row = at(with_control(rows_of(own), own, side(control)), 0.1)
        assert row.score is not None and row.shuffled_score is None and row.decisions_worth is None
    partly = side({1: short, 2: OWN[2]})  # the method itself does not reach the level with one seed
    row = at(with_control(rows_of(partly), partly, side(CONTROL)), 0.1)
    assert row.shuffled_score == pytest.approx(0.5) and row.decisions_worth == pytest.approx(row.score - 0.5)


def test_where_no_level_is_reached_nothing_is_said():
    own, control = side(OWN), side({1: OWN[1][:1], 2: OWN[2][:1]})
    rows = with_control(rows_of(own, (0.0, 0.1, 0.5)), own, control)
    assert at(rows, 0.0).decisions_worth == 0
    assert at(rows, 0.1).decisions_worth is None and at(rows, 0.5).decisions_worth is None


@pytest.mark.parametrize(("metric", "sign"), [("word_perplexity,none", -1), (METRIC, 1)])
def test_a_choice_that_helps_is_worth_more_than_nothing_whichever_way_the_metric_is_better(metric, sign):
    def points(scores):
        found, _ = zip(*[point(asked, [score], saved, metric) for asked, score, saved in scores], strict=True)
        return {1: SeedPoints([asked for asked, *_ in scores], found, [[]] * len(found))}

    better, worse = (0.2, 0.9) if sign < 0 else (0.9, 0.2)
    own, control = points([(0.0, 0.5, 0.0), (0.1, better, 0.1)]), points([(0.0, 0.5, 0.0), (0.1, worse, 0.1)])
    row = at(with_control(rows_of(own, metric=metric), own, control), 0.1)
    assert row.decisions_worth == pytest.approx(0.7) and row.decisions_low is None
