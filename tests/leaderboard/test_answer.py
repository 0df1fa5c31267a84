"""The sentence on top: what it says, and records that must not produce it."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from swept_board import FEW, TRAINED

from adaptive_bench.leaderboard.answer import _fitting, _static_clause, answer
from adaptive_bench.leaderboard.answers import Answers, SweptAnswers
from adaptive_bench.leaderboard.frame import board_of
from adaptive_bench.leaderboard.groups import groups_of
from adaptive_bench.leaderboard.headline import MOST_WORDS
from adaptive_bench.leaderboard.paired import compare
from adaptive_bench.leaderboard.row import checked
from adaptive_bench.leaderboard.site import as_markdown
from adaptive_bench.leaderboard.standing import _times, preferred, standings
from adaptive_bench.leaderboard.texts import NONE
from adaptive_bench.metric import Metric

CLEAR = {"dense": {0.0: 95}, "random_skip": 20, TRAINED: 40, "mod": 90, "calm": 60}
WHERE = "At 15 % saved net FLOPs, "


def asked(found, **about):
    (standing,) = standings(found)
    return answer(found, standing, **about)


def test_a_method_that_is_certainly_ahead_leads_and_beats_cutting_layers(board):
    found = asked(board(CLEAR))
    assert found.text == f"{WHERE}mod leads; beats cutting layers." and found.leader == "mod"
    assert "mod 90.0 [" in found.evidence[0] and "difference +50.0 [" in found.evidence[0]


def test_a_method_that_is_not_separated_from_another_is_tied_with_it(board):
    assert asked(board(CLEAR | {"calm": 89})).text == f"{WHERE}mod leads, tied with 1 other; beats cutting layers."


@pytest.mark.parametrize(("control", "said"), [(81, "; ties cutting layers"), (99, ", but is behind cutting layers")])
def test_cutting_layers_that_keeps_as_much_or_more_is_not_beaten(board, control, said):
    assert asked(board(CLEAR | {"dense": {0.0: 99}, TRAINED: control, "mod": 80})).text == f"{WHERE}mod leads{said}."


def test_without_the_control_nothing_is_said_of_it(board):
    curves = {name: curve for name, curve in CLEAR.items() if name != TRAINED}
    assert asked(board(curves | {"static_depth": 40})).text == f"{WHERE}mod leads; cutting layers was not measured."


def test_an_interpolated_control_is_asked_at_its_own_saving_and_only_nearby(board):
    found = asked(board(CLEAR | {TRAINED: FEW}))
    assert found.text == f"{WHERE}mod leads; beats cutting layers." and "at 11.0 %, where" in found.evidence[0]
    far = asked(board(CLEAR | {TRAINED: {0.0: 99, 0.05: 10, 0.28: 9}}))
    assert far.text == f"{WHERE}mod leads; cutting layers was not measured nearby."
    # The leader was measured at 0, 15 and 30 % alone: read off between them, it is compared all the same.
    read_off = asked(board(CLEAR | {TRAINED: FEW, "mod": {0.0: 95, 0.15: 90, 0.3: 40}}))
    assert read_off.text == f"{WHERE}mod leads; beats cutting layers." and "not counted" not in read_off.evidence[0]
    other = asked(board(CLEAR | {TRAINED: FEW}, rows={TRAINED: {"beyond_target": True}}))
    assert other.text.endswith("not measured nearby.") and "not counted, as it is marked ‡" in other.evidence[0]


@pytest.mark.parametrize(
    "reservation", [{"beyond_target": True}, {"status": "partial"}, {"status": "inert"}, {"seeds": 1}]
)
def test_a_score_with_a_reservation_is_not_named(board, reservation):
    found = board(CLEAR, rows={"mod": reservation})
    assert asked(found, featured=True).text == f"{WHERE}no method is named: the highest mean scores carry reservations."
    tied = board(CLEAR | {"calm": 89}, rows={"mod": reservation})
    assert asked(tied, featured=True).text.startswith(f"{WHERE}calm leads unmarked methods, tied with 1 other;")


def test_an_interpolated_score_is_not_named(board):
    found = asked(board(CLEAR | {"mod": {0.0: 95, 0.3: 95}}))
    assert found.text == f"{WHERE}no method is named: the highest mean scores carry reservations." and not found.leader


def test_nothing_leads_where_random_skipping_is_as_good(board):
    found = asked(board(CLEAR | {"random_skip": 89}))
    assert found.text == f"{WHERE}no method is certainly ahead of random skipping."
    trained = asked(board(CLEAR | {"random_skip[trained=true]": 89}))
    assert trained.text == f"{WHERE}no method is certainly ahead of random skipping."


def test_random_skipping_that_was_not_measured_is_said_to_be_missing(board):
    found = asked(board({name: curve for name, curve in CLEAR.items() if name != "random_skip"}))
    assert found.text.startswith(f"{WHERE}mod leads") and "Random skipping was not measured" in found.evidence[-1]


def test_controls_and_static_methods_are_never_named(board):
    found = asked(board(CLEAR | {"layerskip": 99, "gated": 99, "position_skip[trained=true]": 99}))
    assert found.text == f"{WHERE}mod leads; beats cutting layers."


def test_without_a_score_there_is_no_leader(board):
    found = asked(board({"dense": {0.0: 95}, "mod": {0.0: 95, 0.1: 90}, "random_skip": 20}))
    assert found.text == f"{WHERE}no method reaches this saving on every task."


@pytest.mark.parametrize("dense", [{}, {"dense": {0.0: 0}}])
def test_without_a_dense_score_to_keep_no_method_is_said_not_to_reach_the_saving(board, dense):
    found = asked(board(dense | {"mod": 90, "calm": 0, "random_skip": 20}))
    assert (
        found.text == f"{WHERE}nothing is ranked: the dense model is not known to be better than a guess."
        and not found.leader
    )


def test_a_junk_entry_of_another_recipe_does_not_touch_the_sentence(board, make_row):
    rows = {name: {"recipe": "steps 320", "documents": 100} for name in CLEAR}
    good = board(CLEAR, rows=rows)
    about = {"level": 0.15, "recipe": "steps 2", "documents": 4, "seeds": 1, "method": "free", "score": 1.0}
    junk = checked(make_row(**about, low=None, high=None))
    both = board_of([junk, *(line for line in map(_plain, good.rows))], answers=good.answers)
    first, second = groups_of(both)
    assert (first.featured, first.name, second.featured) == (True, "model not recorded (steps 320)", False)
    assert answer(first.board, *standings(first.board)).text == f"{WHERE}mod leads; beats cutting layers."


def _plain(row):
    return {name: value for name, value in row.plain().items() if name != "label" and value is not None}


def test_several_tasks_have_one_mean_and_count_where_layers_are_beaten(board, make_row):
    found = board(CLEAR)
    answers = Answers(dict(found.answers["run"].sweeps))
    rows = [_plain(row) for row in found.rows]
    for row in [row for row in found.rows if row.level == 0.15 or row.method == "dense"]:
        score = 0.85 if row.method == "mod" else 0.84 if row.method == TRAINED else row.score
        spread = {"low": score - 0.02, "high": score + 0.02, "score": score, "documents": 100}
        rows.append(_plain(row) | spread | {"task": "nano_qa", "metric": "acc,none"})
        right = (np.arange(100) < round(100 * score)).astype(float)
        points = tuple(({"net": saved}, {}, {"acc,none": right}) for saved in (0.0, 0.15, 0.2))
        place = (row.method, "bench", "nano_qa", None)
        answers.sweeps[place] = [SweptAnswers(seed, tuple(range(100)), points, (0.0, 0.5, 1.0)) for seed in (1, 2, 3)]
    rows = [row | ({"low": row["score"] - 0.02, "high": row["score"] + 0.02} if "score" in row else {}) for row in rows]
    both = board_of(map(checked, rows), answers={"run": answers})
    (standing,) = [one for one in standings(both) if one.level == 0.15]
    (mod,) = [line for line in standing.lines if line.label == "mod"]
    assert mod.overall == pytest.approx((90 + 85) / 2 / 95) and mod.rank == (1, 1)
    found = answer(both, standing)
    assert found.text == f"{WHERE}mod leads; beats cutting layers on 1 of 2 tasks." and len(found.evidence) == 2
    lost = replace(standing, lines=tuple(replace(line, overall=None, rank=None) for line in standing.lines))
    assert "no method reaches" in answer(both, lost).text


def scored(make_row, scores, **rows):
    """A board with scores [S, D] by task (its metric) and method, dense and base at 0 and others at 15 %."""
    answers, found = Answers(), []
    for task, by_method in scores.items():
        metric = "bits_per_byte,none" if task == "bits" else "acc,none"
        for method, values in by_method.items():
            level = 0.0 if method in ("dense", "base") else 0.15
            answers.sweeps[method, "bench", task, None] = [
                SweptAnswers(seed, tuple(range(len(one))), (({"net": level}, {}, {metric: one}),), (level,))
                for seed, one in enumerate(values)
            ]
            about = {"method": method, "task": task, "metric": metric, "level": level, "score": float(values.mean())}
            found.append(checked(make_row(**about, low=None, high=None) | rows.get(method, {})))
    return board_of(found, answers={"run": answers})


def test_overall_is_the_mean_of_scores_with_base_at_0_and_dense_at_100_on_every_metric(make_row):
    """By pandas; the base is below chance on csqa_ll (0.2 by its task), and bits per byte are linear too."""
    draw = np.random.default_rng(0)
    rates = {"dense": 0.9, "base": 0.05, "mod": 0.7, "calm": 0.4, "skiplayer": 0.1}
    scores = {
        "csqa_ll": {name: (draw.random((3, 60)) < rate).astype(float) for name, rate in rates.items()},
        "bits": {name: 1.5 - rate + draw.normal(0, 0.1, (3, 40)) for name, rate in rates.items()},
    }
    (standing,) = [one for one in standings(scored(make_row, scores)) if one.level == 0.15]
    frame = pd.DataFrame({task: {name: one.mean() for name, one in some.items()} for task, some in scores.items()})
    nothing = pd.Series({"csqa_ll": 0.2, "bits": frame["bits"]["base"]})
    expected = ((frame - nothing) / (frame.loc["dense"] - nothing)).mean(axis=1)
    assert {line.label: line.overall for line in standing.lines} == pytest.approx(expected.to_dict())
    assert expected["dense"] == 1 and expected["base"] < 0  # a guess is better than the base
    by_seed = pd.DataFrame({task: some["mod"].mean(axis=1) for task, some in scores.items()})
    by_seed = ((by_seed - nothing) / (frame.loc["dense"] - nothing)).mean(axis=1)
    (mod,) = [line for line in standing.lines if line.label == "mod"]
    assert mod.scores.values.mean(axis=1) == pytest.approx(by_seed.to_numpy())
    assert mod.interval[0] < mod.overall < mod.interval[1]


def test_overall_ranks_come_from_paired_tests_of_the_mean_and_not_from_intervals(make_row):
    """Three methods on hard and easy documents: intervals overlap, paired differences do not. Seeds agree here, so that
    the test is scipy's paired t test over documents, each weighted by its task's share of the mean.
    """
    draw = np.random.default_rng(1)
    scores, weighted = {}, {name: [] for name in ("mod", "calm", "free")}
    for task, documents in (("a", 80), ("b", 40)):
        ease = draw.random(documents)
        one = {"mod": ease > 0.3, "calm": ease > 0.4, "free": ease > np.where(draw.random(documents) < 0.5, 0.38, 0.42)}
        some = {"dense": np.ones(documents), "base": np.zeros(documents)}
        some |= {name: right.astype(float) for name, right in one.items()}
        scores[task] = {name: np.tile(right, (3, 1)) for name, right in some.items()}
        for name, parts in weighted.items():
            parts.append((some[name] - some[name].mean()) * 120 / (2 * documents) + some[name].mean())
    (standing,) = [one for one in standings(scored(make_row, scores)) if one.level == 0.15]
    lines = {line.label: line for line in standing.lines if line.rank is not None}
    means = {name: np.mean([scores[task][name].mean() for task in scores]) for name in lines}
    assert {name: line.overall for name, line in lines.items()} == pytest.approx(means)
    assert lines["calm"].interval[1] > lines["mod"].interval[0]  # they overlap
    whole = {
        name: means[name] + np.concatenate([part - part.mean() for part in parts]) for name, parts in weighted.items()
    }
    pairs = list(itertools.combinations(lines, 2))
    alone = [stats.ttest_rel(whole[one], whole[other]).pvalue for one, other in pairs]
    joint = compare({name: line.scores for name, line in lines.items()}, Metric("higher"))
    assert [joint.over(*pair).p for pair in pairs] == pytest.approx(holm(alone))
    apart = {pair for pair, p in zip(pairs, holm(alone), strict=True) if p < 0.05}
    assert apart == {("mod", "calm"), ("mod", "free")}
    assert {name: line.rank for name, line in lines.items()} == {"mod": (1, 1), "calm": (2, 3), "free": (2, 3)}


def holm(p_values):
    """Holm's step-down correction, by its definition."""
    order = np.argsort(p_values)
    stepped = np.maximum.accumulate([(len(order) - step) * p_values[place] for step, place in enumerate(order)])
    return [min(1.0, stepped[list(order).index(place)]) for place in range(len(order))]


def test_a_task_on_which_training_gained_nothing_has_no_scale(make_row):
    one = {"dense": 0.4, "base": 0.5, "mod": 0.45}
    other = {"dense": 0.9, "base": 0.5, "mod": 0.7}
    scores = {
        task: {name: np.tile(np.arange(20) < 20 * rate, (2, 1)).astype(float) for name, rate in rates.items()}
        for task, rates in (("a", one), ("b", other))
    }
    (standing,) = [found for found in standings(scored(make_row, scores)) if found.level == 0.15]
    assert standing.left_out == ("a",) and standing.lines[0].overall == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("found", "tasks", "said"),
    [
        ([1, 1], 2, "beats cutting layers on all 2 tasks"),
        ([-1, 0], 3, "is behind cutting layers on 1 of 2 tasks compared"),
        ([0, 0], 3, "ties cutting layers on all 2 tasks compared"),
        ([0], 2, "ties cutting layers on the one task compared"),
        ([-1], 2, "is behind cutting layers on the one task compared"),
        ([1, -1, 0], 3, "beats cutting layers on 1 task, behind on 1"),
    ],
)
def test_a_task_without_a_comparison_counts_neither_way(found, tasks, said):
    assert _static_clause(found, True, tasks) == said


def test_a_task_whose_dense_score_is_0_does_not_count_and_a_method_without_a_task_has_no_mean(make_row):
    rows = [
        make_row(method=method, task=task, level=level, score=score, low=score, high=score)
        for task, method, level, score in (
            ("a", "dense", 0.0, 0.8), ("a", "mod", 0.15, 0.4), ("a", "calm", 0.15, 0.6),
            ("b", "dense", 0.0, 0.4), ("b", "mod", 0.15, 0.4), ("c", "dense", 0.0, 0.0), ("c", "mod", 0.15, 0.0),
        )
    ]  # fmt: skip
    (found,) = standings(board_of(map(checked, rows)))
    assert [grid.name for grid in found.tasks] == ["a", "b"] and found.left_out == ("c",)
    assert [(line.label, line.overall) for line in found.lines] == [("mod", 0.75), ("calm", None), ("dense", 1.0)]


def test_what_is_lost_with_other_tokens_decisions_is_on_the_scale_of_the_overall_score(make_row):
    about = {"decisions_worth": 0.3, "decisions_low": 0.1, "decisions_high": 0.4, "shuffled_apart": 0.0}
    rows = [
        make_row(method="dense", level=0.0, score=0.8, low=0.8, high=0.8),
        make_row(method="base", level=0.0, score=0.2, low=0.2, high=0.2),
        make_row(method="mod", level=0.15, score=0.6, low=0.6, high=0.6, shuffled_score=0.3, **about),
        make_row(method="calm", level=0.15, score=0.6, low=0.6, high=0.6, shuffled_score=0.3)
        | about | {"shuffled_apart": 0.1},
    ]  # fmt: skip
    (found,) = standings(board_of(map(checked, rows)))
    lines = {line.label: line for line in found.lines}
    assert lines["mod"].lost == pytest.approx(0.3 / (0.8 - 0.2)) and (lines["mod"].loses, lines["mod"].asked) == (1, 1)
    assert lines["calm"].lost is None and lines["calm"].asked == 0  # saves another amount: nothing can be said


def test_saved_time_is_read_off_where_the_score_is(make_row):
    scores = np.ones(100)
    points = tuple(({"net": net}, {"batch 1": net / 2}, {"acc,none": scores}) for net in (0.0, 0.1, 0.2))
    sweeps = [SweptAnswers(seed, tuple(range(100)), points, plain_ms={"batch 1": 4.0}) for seed in (1, 2)]
    about = {"metric": "acc,none", "score": 1.0, "low": 0.9, "high": 1.0}
    rows = [make_row(method="dense", level=0.0, **about), make_row(method="mod", level=0.15, **about)]
    board = board_of(map(checked, rows), answers={"run": Answers({("mod", "bench", "nano_math", None): sweeps})})
    (found,) = standings(board)
    assert found.lines[0].times == {"batch 1": pytest.approx(0.075)} and found.lines[1].times is None
    text = as_markdown(board, "net")
    (line,) = [one for one in text.partition("saved time at 15 %")[2].splitlines() if one.startswith("| mod")]
    assert [part.strip() for part in line.split("|")[1:-1]] == ["mod", "batch 1", "7.5", "3.7"]


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        (None, [NONE, ""]),
        ({"batch 1": 0.126}, ["13", "batch 1: 13 %; batch 8: not measured"]),
        ({"batch 8": -0.2, "batch 1": 0.126}, ["-20 to 13", "batch 1: 13 %; batch 8: -20 %"]),
    ],
)
def test_the_page_shows_saved_time_from_the_least_to_the_most_and_each_on_hover(times, shown):
    assert _times(SimpleNamespace(times=times), ["batch 1", "batch 8"]) == shown


@given(st.lists(st.sampled_from((-1, 0, 1)), max_size=3), st.booleans(), st.integers(0, 2))
def test_every_clause_has_fewer_than_25_words_and_counts_what_was_found(found, there, more):
    said = _static_clause(found, there, max(1, len(found) + more))
    assert ("beats" in said) == (there and 1 in found) and ("behind" in said) == (there and -1 in found)
    longest = f"mod leads unmarked methods ahead of chance, tied with 3 others; {said}"
    standing = type("Some", (), {"level": 0.15, "phase": "decode", "axis": "net"})
    assert len(_fitting(longest, standing).split()) <= MOST_WORDS


def test_the_level_shown_first_is_the_nearest_to_15_percent():
    assert preferred([0.05, 0.1, 0.2]) == 0.1 and preferred([]) is None
