"""The steps rule: equal trainings of N, 2N and 4N steps, judged on validation documents, found again by a run."""

import json
from pathlib import Path

import numpy as np
import pytest

from adaptive_bench import output
from adaptive_bench.cli.steps import shown
from adaptive_bench.errors import UsageError
from adaptive_bench.leaderboard.frame import read_board
from adaptive_bench.runs import plan, run, steps
from adaptive_bench.runs.steps import StepScore, compare_steps
from adaptive_bench.tables.document_scores import DocumentScores

ROOT = Path(__file__).parents[2]
METHODS = ("base", "gateskip[shape=scalar]", "mod[every=1]@paper", "random_skip")


@pytest.fixture
def of_steps(config_of):
    """A run of two steps."""

    def make(methods=METHODS, **changes):
        return config_of(methods, **{"train": {"steps": 2}, "levels": (0.0, 0.1, 0.15)} | changes)

    return make


def test_every_trained_method_is_trained_for_every_number_of_steps_and_a_run_finds_the_trainings(of_steps):
    config = of_steps(evaluation={"limit": 8})
    found = compare_steps(config, [2, 4], level=0.1, jobs=1)
    assert not found.failures
    assert {(one.method, one.steps) for one in found.scores} == {
        (method, number) for method in METHODS if method != "base" for number in (2, 4)
    }
    assert all(one.metric == "acc,none" and one.documents == 8 and one.largest >= 0.1 for one in found.scores)
    assert all(one.low <= one.score <= one.high and one.saved_tokens == pytest.approx(0.1) for one in found.scores)
    for number in (2, 4):
        train = {"steps": number}
        whole = plan(of_steps(train=train))
        ours = {key for one in found.scores if one.steps == number for key in one.records}
        assert {one.folder.name for one in whole.trainings if one.spec.name != "base"} == ours
        assert all(one.finished for one in whole.trainings if one.spec.name != "base")
        assert all(sweep.finished() is None for sweep in whole.sweeps)  # test documents have not been looked at
    (only,) = found.doublings
    assert (only.steps, set(only.moved), only.pairs) == (2, set(METHODS) - {"base"}, 3)
    done = run(config)
    output.write_json(done.folder / "steps.json", found.to_json(config))
    board = read_board([done.folder / "table.json"])
    assert not board.problems
    (record,) = board.steps.values()
    assert {record.steps_of(row) for row in board.rows if row.method != "base"} == {2}
    for row in board.rows:  # of test documents: scores are read off as those of a table
        if (row.axis, row.phase, row.level, row.metric) == ("tokens", "all", 0.1, "acc,none") and row.method != "base":
            score, documents = steps._best(plan(config), row.spec, row.task, 0.1)
            assert (score.score, score.low, score.high, score.gap) == (row.score, row.low, row.high, row.gap)
            assert documents.values.mean() == pytest.approx(row.score)
    written = json.loads((done.folder / "steps.json").read_text())
    assert written["documents"] == "validation" and written["steps"] == [2, 4]
    assert "steps" not in written["recipe"]["train"] and written["recipe"]["train"]["warmup_steps"] == 1


def test_by_default_steps_are_the_configs_own_twice_and_four_times_that(of_steps, monkeypatch):
    asked = []
    monkeypatch.setattr(steps, "carry_out", lambda whole, *_: asked.append(whole.config.train.steps) or [])
    found = compare_steps(of_steps("mod[every=1]"))
    assert (asked, found.steps, found.scores, found.enough) == ([2, 4, 8], (2, 4, 8), (), None)
    assert "None of 2, 4 steps is shown to be enough." in shown(found)


def test_of_several_targets_the_better_one_serves_the_level(of_steps):
    found = compare_steps(of_steps("mod[every=1]", train={"steps": 2, "target": (0.1, 0.3)}), [2, 4], 0.1, jobs=1)
    assert len(found.scores) == 2 and {one.target for one in found.scores} <= {0.1, 0.3}


def test_a_level_out_of_reach_has_no_score_and_says_how_far_the_method_gets(of_steps):
    found = compare_steps(of_steps(("dense", "random_skip")), [2, 4], 0.1, jobs=1)
    dense = [one for one in found.scores if one.method == "dense"]
    assert [(one.score, one.largest) for one in dense] == [(None, 0.0)] * 2
    assert "dense" in shown(found) and "n/a" in shown(found)
    assert set(found.doublings[0].moved) == {"random_skip"}


@pytest.fixture
def fabricated(of_steps, monkeypatch):
    """`fabricated(shares)`: the comparison of methods that are right on such shares of 60 documents, by steps."""

    def make(shares):
        def best(whole, method, task, level):
            share, number = shares[method][whole.config.train.steps], whole.config.train.steps
            values = np.random.default_rng(len(method)).permutation(60) < 60 * share
            about = (method, task, "acc,none", number, share, None, None, level, level, 0.05, 0.3, None, 1, 60, ("ab",))
            return StepScore(*about), DocumentScores((1,), tuple(range(60)), values[None].astype(float))

        monkeypatch.setattr(steps, "carry_out", lambda *_: [])
        monkeypatch.setattr(steps, "_best", best)
        config = of_steps(tuple(shares))
        return config, compare_steps(config, [2, 4, 8])

    return make


def test_an_under_trained_method_is_caught(fabricated):
    config, found = fabricated({"gateskip": {2: 0.1, 4: 0.9, 8: 0.9}, "mod": dict.fromkeys((2, 4, 8), 0.5)})
    assert found.enough == 4
    assert [one.reversals for one in found.doublings] == [(("mod", "gateskip"),), ()]
    text = shown(found)
    assert "4 steps are enough: no order that tests tell apart reverses at 8." in text
    assert "After 2 steps tests tell 1 of 1 pairs apart; at 4 these reverse: mod and gateskip on nano_qa_ll." in text
    assert "0.100#" in text and "0.900#" not in text and "0.500#" not in text
    record = json.loads(json.dumps(found.to_json(config)))
    assert record["enough"] == 4
    assert [one["not_converged"] for one in record["doublings"]] == [["gateskip"], []]
    assert record["doublings"][0]["methods"]["gateskip"]["ranks"] == [[2, 2], [1, 1]]


def test_where_orders_reverse_to_the_end_nothing_is_enough(fabricated):
    _, found = fabricated({"gateskip": {2: 0.1, 4: 0.9, 8: 0.1}, "mod": dict.fromkeys((2, 4, 8), 0.5)})
    assert found.enough is None
    assert "None of 2, 4 steps is shown to be enough." in shown(found)


@pytest.mark.parametrize(
    ("asked", "level", "methods", "rule"),
    [
        ([2], 0.1, "mod", "twice the one before, got \\[2\\]"),
        ([2, 6], 0.1, "mod", "twice the one before"),
        ([0, 0], 0.1, "mod", "twice the one before"),
        ([4, 2], 0.1, "mod", "twice the one before"),
        ([2, 4], 0.12, "mod", "a level that nano_qa_ll is measured at"),
        ([2, 4], 0.1, "base", "methods that are trained, got base"),
        ([10_000_000, 20_000_000], 0.1, "mod", "at most"),
    ],
)
def test_what_cannot_be_compared_is_refused(of_steps, asked, level, methods, rule):
    with pytest.raises(UsageError, match=rule):
        compare_steps(of_steps(methods), asked, level)


def test_the_protocol_shows_the_scores_of_the_record():
    record = json.loads((ROOT / "docs/records/nano_steps.json").read_text(encoding="utf-8"))
    moves = {(one["steps"], one["task"], name) for one in record["doublings"] for name in one["not_converged"]}
    expected = {}
    for one in sorted(record["scores"], key=lambda one: (one["task"], one["steps"])):
        mark = "#" if (one["steps"], one["task"], one["method"]) in moves else ""
        expected.setdefault(f"`{one['method']}`", []).append(f"{100 * one['score']:.1f}{mark}")
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    lines = text.partition("| % on validation documents at 15 % net |")[2].splitlines()
    shown = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2 : lines.index("")]]
    assert {name: scores for name, *scores in shown} == expected
    assert record["enough"] == 320 and not any(one["reversals"] for one in record["doublings"])
