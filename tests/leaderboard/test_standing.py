"""The ranked list: scores with a guess or base at 0 and dense at 100, ranks from paired tests, and who has none."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from swept_board import BITS, METRIC, board_with, right

from adaptive_bench import registry
from adaptive_bench.leaderboard.boards import board_of
from adaptive_bench.leaderboard.row import checked
from adaptive_bench.leaderboard.standing import chooses, preferred, standings
from adaptive_bench.tables.comparison import Column, rank_intervals
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tables.intervals import UNBOUNDED, interval

RATES = {"dense": 0.9, "base": 0.05, "mod": 0.7, "calm": 0.4, "skiplayer": 0.1}


def drawn(rates=RATES, documents=60, seed=0):
    draw = np.random.default_rng(seed)
    return {name: (draw.random((3, documents)) < rate).astype(float) for name, rate in rates.items()}


def only(board):
    (standing,) = standings(board)
    return standing, {line.label: line for line in standing.lines}


@pytest.mark.parametrize("base", [0.05, 0.88])
def test_a_score_is_the_mean_over_tasks_with_a_guess_or_base_at_0_and_dense_at_100(make_row, base):
    """By pandas. A guess counts on csqa_ll (.2 by its task), and of bits per byte fewer are better than base."""
    draw = np.random.default_rng(1)
    bits = {name: 1.5 - rate + draw.normal(0, 0.1, (3, 40)) for name, rate in RATES.items()}
    scores = {"csqa_ll": drawn(RATES | {"base": base}), "bits": bits}
    board = board_with(make_row, scores)
    rows = [replace(row, metric="acc,none") if row.task == "csqa_ll" else row for row in board.rows]
    for sweeps in (found for place, found in board.sources[0].answers.sweeps.items() if place[2] == "csqa_ll"):
        for sweep in sweeps:
            sweep.points[0].scores["acc,none"] = sweep.points[0].scores[METRIC]
    standing, lines = only(type(board)(rows, board.sources))
    frame = pd.DataFrame({task: {name: one.mean() for name, one in some.items()} for task, some in scores.items()})
    nothing = pd.Series({"csqa_ll": 0.2, "bits": frame["bits"]["base"]})
    expected = ((frame - nothing) / (frame.loc["dense"] - nothing)).mean(axis=1)
    assert {name: line.score for name, line in lines.items()} == pytest.approx(expected.to_dict())
    assert expected["dense"] == 1 and (expected["base"] < 0) == (base < 0.2) and next(iter(lines)) == "dense"
    by_seed = pd.DataFrame({task: some["mod"].mean(axis=1) for task, some in scores.items()})
    by_seed = ((by_seed - nothing) / (frame.loc["dense"] - nothing)).mean(axis=1)
    mod = lines["mod"]
    assert mod.scores.values.mean(axis=1) == pytest.approx(by_seed.to_numpy())
    found = interval(mod.scores.values, UNBOUNDED)
    assert mod.interval == (found.low, found.high) and mod.interval[0] < mod.score < mod.interval[1]
    assert standing.tasks == (("csqa_ll", "acc,none"), ("bits", BITS)) and standing.seeds == 3


def holm(p_values):
    """Holm's step-down correction, by its definition."""
    order = np.argsort(p_values)
    stepped = np.maximum.accumulate([(len(order) - step) * p_values[place] for step, place in enumerate(order)])
    return [min(1.0, stepped[list(order).index(place)]) for place in range(len(order))]


def test_ranks_come_from_paired_tests_of_the_mean_and_not_from_intervals(make_row):
    """Three methods on hard and easy documents: intervals overlap, paired differences do not. Seeds agree here, so that
    the test is scipy's paired t test over documents, each weighted by its task's share of the mean.
    """
    draw = np.random.default_rng(1)
    scores, weighted = {}, {name: [] for name in ("mod", "calm", "free")}
    for task, documents in (("a", 80), ("b", 40)):
        ease = draw.random(documents)
        one = {"mod": ease > 0.3, "calm": ease > 0.4, "free": ease > np.where(draw.random(documents) < 0.5, 0.38, 0.42)}
        some = {"dense": np.ones(documents), "base": np.zeros(documents)}
        some |= {name: hits.astype(float) for name, hits in one.items()}
        scores[task] = {name: np.tile(hits, (3, 1)) for name, hits in some.items()}
        for name, parts in weighted.items():
            parts.append((some[name] - some[name].mean()) * 120 / (2 * documents))
    _, lines = only(board_with(make_row, scores))
    lines = {name: lines[name] for name in weighted}
    means = {name: np.mean([scores[task][name].mean() for task in scores]) for name in lines}
    assert {name: line.score for name, line in lines.items()} == pytest.approx(means)
    assert lines["calm"].interval[1] > lines["mod"].interval[0]  # they overlap
    whole = {name: means[name] + np.concatenate(parts) for name, parts in weighted.items()}
    pairs = list(combinations(lines, 2))
    alone = [stats.ttest_rel(whole[one], whole[other]).pvalue for one, other in pairs]
    apart = {pair for pair, p in zip(pairs, holm(alone), strict=True) if p < 0.05}
    assert apart == {("mod", "calm"), ("mod", "free")}
    assert {name: line.rank for name, line in lines.items()} == {"mod": (1, 1), "calm": (2, 3), "free": (2, 3)}


@pytest.mark.parametrize("seed", range(4))
def test_on_one_task_ranks_and_differences_are_those_of_its_documents(make_row, seed):
    """Base 0 and dense 1: the scale is the score itself."""
    names = ("static_depth", "mod", "calm", "random_skip", "static_depth[unit=branch]")
    rates = dict(zip(names, np.random.default_rng(seed).permutation([0.9, 0.85, 0.5, 0.45, 0.2]), strict=True))
    scores = drawn(rates, 80, seed) | {"dense": right(1.0, 80), "base": right(0.0, 80)}
    standing, lines = only(board_with(make_row, {"task": scores}))
    methods = {name: DocumentScores((1, 2, 3), tuple(range(80)), scores[name]) for name in names}
    order = sorted(methods, key=lambda name: -methods[name].values.mean())
    tests = Column({name: methods[name] for name in order})
    pairs = tests.family(list(combinations(order, 2)))
    ranks = rank_intervals(order, lambda one, other: pairs[one, other].apart)
    assert {name: line.rank for name, line in lines.items() if line.rank} == ranks
    assert [line.label for line in standing.ranked] == order
    static = next(name for name in order if name.startswith("static_depth"))
    over = tests.family([(name, static) for name in order if name != static])
    assert standing.static == static and lines[static].over_static is None
    for (name, _), wanted in over.items():
        found = lines[name].over_static
        assert (found.difference, found.p) == pytest.approx((wanted.difference, wanted.p))
        assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))


@pytest.mark.parametrize(
    "flaw", [{"status": "nearest", "saved": 0.12}, {"status": "partial"}, {"status": "inert"}, {"status": "missing"}]
)
def test_who_does_not_meet_the_level_has_no_rank_and_is_nobodys_control(make_row, flaw):
    scores = {"dense": right(1), "base": right(0), "static_depth": right(0.9), "mod": right(0.8), "calm": right(0.5)}
    standing, lines = only(board_with(make_row, {"a": scores}, static_depth=flaw))
    assert lines["static_depth"].rank is None and lines["static_depth"].score == pytest.approx(0.9)
    assert standing.static is None and lines["mod"].over_static is None
    assert {name: line.rank for name, line in lines.items() if line.rank} == {"mod": (1, 1), "calm": (2, 2)}
    assert lines["dense"].rank is None and lines["base"].rank is None


def test_a_method_that_lacks_a_task_has_no_score_and_stands_last(make_row):
    scores = {"dense": right(1), "base": right(0), "mod": right(0.4)}
    board = board_with(make_row, {"a": scores | {"calm": right(0.9)}, "b": scores})
    standing, lines = only(board)
    assert [line.label for line in standing.lines] == ["dense", "mod", "base", "calm"]
    assert lines["calm"].score is None and [row is None for row in lines["calm"].rows] == [False, True]


@pytest.mark.parametrize("base", [0.5, 0.35])
def test_a_task_on_which_training_gained_little_or_nothing_has_no_scale(make_row, base):
    one = {"dense": right(0.4), "base": right(base), "mod": right(0.45)}
    other = {"dense": right(0.9), "base": right(0.5), "mod": right(0.7)}
    standing, lines = only(board_with(make_row, {"a": one, "b": other}))
    assert standing.left_out == ("a",) and [task for task, _ in standing.tasks] == ["b"]
    assert lines["mod"].score == pytest.approx(0.5)
    standing, lines = only(board_with(make_row, {"a": one}))
    assert standing.left_out == ("a",) and lines["mod"].score is None and not standing.ranked
    without, lines = only(board_with(make_row, {"a": {"mod": right(0.5)}}))
    assert without.left_out == ("a",) and lines["mod"].rows[0].score == 0.5


def test_without_documents_there_is_a_score_and_nothing_to_tell_methods_apart_by(make_row):
    rows = [make_row(method=name, task=task, level=0.15, score=score, low=score - 0.1, high=score + 0.1)
            for task in ("a", "b") for name, score in (("dense", 0.8), ("mod", 0.6), ("calm", 0.2))]  # fmt: skip
    standing, lines = only(board_of(map(checked, rows)))
    assert lines["mod"].score == pytest.approx(0.75) and lines["mod"].interval is None
    assert {line.rank for line in standing.ranked} == {(1, 2)}
    _, lines = only(board_of(map(checked, rows[:3])))
    assert lines["mod"].interval == pytest.approx((0.5 / 0.8, 0.7 / 0.8))  # that of the row, on the scale


def test_what_other_tokens_decisions_lose_is_on_the_scale_of_the_score(make_row):
    rows = [make_row(method=name, task=task, level=0.15, score=score, shuffled_score=shuffled)
            for task in ("a", "b")
            for name, score, shuffled in (
                ("dense", 0.8, None), ("base", 0.2, None), ("mod", 0.6, 0.3 if task == "a" else 0.5),
                ("calm", 0.6, 0.3 if task == "a" else None))]  # fmt: skip
    _, lines = only(board_of(map(checked, rows)))
    assert lines["mod"].lost == pytest.approx((0.3 + 0.1) / 2 / 0.6) and lines["calm"].lost is None


def test_savings_are_means_over_tasks_and_time_is_that_of_the_points_behind_the_scores(make_row):
    scores = {"dense": right(1), "base": right(0), "mod": right(0.8)}
    times = {"batch 1": -0.2, "batch 8": 0.1}
    mod = {"times": times, "saved_tokens": 0.2, "saved_net": 0.15, "projected_net": 0.16, "eligible": "layers 1-2"}
    _, lines = only(board_with(make_row, {"a": scores, "b": scores}, mod=mod))
    line = lines["mod"]
    assert (line.saved, line.skipped, line.net, line.projected) == pytest.approx((0.15, 0.2, 0.15, 0.16))
    assert line.times == pytest.approx(times) and line.eligible == "layers 1-2" and lines["dense"].times == {}


def test_levels_stand_apart_and_the_one_nearest_to_15_percent_is_shown_first(make_row):
    rows = [
        make_row(method=name, level=level, score=0.5) for level in (0.0, 0.05, 1 / 6, 0.25) for name in ("mod", "dense")
    ]
    found = standings(board_of(map(checked, rows)))
    assert [one.level for one in found] == [0.05, 1 / 6, 0.25] and preferred(found) is found[1]
    assert preferred([]) is None


def test_of_a_task_that_was_asked_in_two_ways_the_one_with_more_documents_counts(make_row):
    rows = [make_row(method=name, level=0.15, score=score, documents=documents)
            for documents, score in ((8, 1.0), (100, 0.5)) for name in ("dense", "mod")]  # fmt: skip
    standing, lines = only(board_of(map(checked, rows)))
    assert lines["mod"].rows[0].documents == 100 and len(standing.lines) == 2


@pytest.mark.parametrize(
    ("label", "how"),
    [("dense", ""), ("base", ""), ("random_skip[trained=true]", "by chance"), ("static_depth", "never"),
     ("mod", "per token"), ("prompt_router", "per prompt"), ("not_here[x=1]", "per token")],
)  # fmt: skip
def test_what_a_row_chooses_by(label, how):
    assert chooses(label) == how


@pytest.mark.parametrize("name", registry.names("methods"))
def test_what_a_method_chooses_by_is_read_as_its_class_has_it(name):
    found = registry.get("methods", name)
    known = "never" if not found.adapts else "per prompt" if found.once_per_prompt else "per token"
    assert chooses(name) in (known, "", "by chance")
