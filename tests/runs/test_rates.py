"""The rate rule: equal trials on one grid, judged on validation documents, found again by a run with the choice."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from adaptive_bench.config_file import load_config
from adaptive_bench.errors import UsageError
from adaptive_bench.jobs.failure import Failure
from adaptive_bench.runs import plan
from adaptive_bench.runs import rates as rates_module
from adaptive_bench.runs.rates import RateChoice, Trial, choose_rates

ROOT = Path(__file__).parents[2]


def _trial(method, rate, *scores):
    return Trial(method, rate, {f"task{number}": score for number, score in enumerate(scores)}, 0.1, ("abc",))


def test_the_best_mean_over_tasks_wins_and_of_equal_ones_the_lowest_rate():
    trials = (
        _trial("gateskip", 0.1, 0.9, 0.1),
        _trial("gateskip", 0.01, 0.6, 0.6),
        _trial("gateskip", 0.001, 0.2, 0.2),
        _trial("mod", 0.1, 0.5),
        _trial("mod", 0.001, 0.5),
    )
    assert RateChoice(trials, ()).chosen == {"gateskip": 0.01, "mod": 0.001}


def test_where_lower_is_better_the_lowest_score_wins(config_of):
    trials = [
        replace(_trial("mod", rate, score), better="lower") for rate, score in ((0.1, 2.3), (0.01, 2.2), (1, 4.7))
    ]
    assert RateChoice(tuple(trials), ()).chosen == {"mod": 0.01}
    choice = choose_rates(config_of("mod[every=1]", tasks=("nano_text",), train_on=("nano_qa",)), [1e-5, 1e2], jobs=1)
    assert {trial.better for trial in choice.trials} == {"lower"}
    assert choice.chosen == {"mod[every=1]": min(choice.trials, key=lambda trial: trial.score).rate}
    with pytest.raises(UsageError, match="one direction, got nano_qa: higher, nano_text: lower"):
        choose_rates(config_of("mod", tasks=("nano_qa", "nano_text")), [0.1])


def test_every_method_gets_every_rate_on_validation_documents_and_a_run_finds_the_training(config_of):
    config = config_of(("gateskip", "mod[every=1]"))
    choice = choose_rates(config, [0.001, 0.1], jobs=1)
    assert not choice.failures
    assert {(trial.method, trial.rate) for trial in choice.trials} == {
        (method, rate) for method in ("gateskip", "mod[every=1]") for rate in (0.001, 0.1)
    }
    assert all(trial.level == 0.1 and trial.scores.keys() == {"nano_qa_ll"} for trial in choice.trials)
    recipe = config.train.model_copy(update={"method_learning_rates": choice.chosen})
    whole = plan(config.model_copy(update={"train": recipe}))
    assert all(training.finished for training in whole.trainings)
    assert all(sweep.finished() is None for sweep in whole.sweeps)  # test documents have not been looked at
    written = json.loads(json.dumps(choice.to_json(config)))
    assert written["chosen"] == choice.chosen and written["documents"] == "validation"


def _measured_as(monkeypatch, score_of):
    """Have trials scored by a formula of their rate; what is asked for, in turns."""
    asked = []

    def measure(config, wanted, reporter, jobs):
        asked.append([(str(spec), rate) for spec, rate in wanted])
        failed = [Failure(f"train {spec}", "it burns") for spec, rate in wanted if score_of(str(spec), rate) is None]
        return {one: [one] for one in wanted if score_of(str(one[0]), one[1]) is not None}, failed

    def trial(spec, rate, sweeps, level, better):
        return _trial(str(spec), rate, score_of(str(spec), rate))

    monkeypatch.setattr(rates_module, "_measure", measure)
    monkeypatch.setattr(rates_module, "_trial", trial)
    monkeypatch.setattr(rates_module, "_common_level", lambda trials, tabled: 0.1)
    return asked


def test_the_grid_grows_where_its_edge_wins_until_the_best_lies_inside(config_of, monkeypatch):
    best = {"gateskip": 0.5, "mod[every=1]": 0.002, "skiplayer": 0.01}
    asked = _measured_as(monkeypatch, lambda method, rate: -abs(math.log(rate / best[method])))
    choice = choose_rates(config_of(tuple(best), train={"learning_rate": 0.002}))
    assert asked[1:] == [[("gateskip", 0.25), ("mod[every=1]", 0.0004)], [("gateskip", 1.25)]]
    assert choice.chosen == {"gateskip": 0.25, "mod[every=1]": 0.002, "skiplayer": 0.01}
    assert choice.at_edge == dict.fromkeys(best, False)
    assert {(one.method, one.rate) for one in choice.trials if one.extension} == {
        ("gateskip", 0.25),
        ("mod[every=1]", 0.0004),
        ("gateskip", 1.25),
    }


def test_an_edge_that_wins_still_is_said(config_of, monkeypatch):
    asked = _measured_as(monkeypatch, lambda method, rate: rate if method == "gateskip" else -rate)
    config = config_of(("gateskip", "skiplayer"), train={"learning_rate": 0.002})
    choice = choose_rates(config)
    assert [len(each) for each in asked] == [6, 2, 2]  # no more than two extensions each
    assert choice.chosen == {"gateskip": 1.25, "skiplayer": 0.00008}
    written = choice.to_json(config.model_copy(update={"model": "/somewhere/small-model"}))
    assert written["recipe"]["model"] == "small-model"  # no path of a machine
    assert {"train_on", "match_phase", "chat_template"} < set(written["recipe"])
    assert "method_learning_rates" not in written["recipe"]["train"]
    assert written["edge"] == {"gateskip": True, "skiplayer": True}
    assert written["leads"]["gateskip"] == {"over": 0.25, "by": 1.0}
    assert [trial["extension"] for trial in written["trials"]] == [False] * 6 + [True] * 4
    second, first = choice.said(3)
    assert (
        first.startswith("gateskip: 1.25 is ahead of 0.25 by 1.0000, 3 seeds; it is at the edge") and "8e-05" in second
    )


def test_a_rate_beyond_the_grid_that_fails_ends_it(config_of, monkeypatch):
    asked = _measured_as(monkeypatch, lambda method, rate: None if rate > 0.1 else rate)
    choice = choose_rates(config_of("gateskip", train={"learning_rate": 0.002}))
    assert len(asked) == 2 and choice.chosen == {"gateskip": 0.05} and choice.at_edge == {"gateskip": False}
    assert [failure.reason for failure in choice.failures] == ["it burns"]


def test_an_edge_that_ties_with_another_rate_wins_nothing(config_of, monkeypatch):
    asked = _measured_as(monkeypatch, lambda method, rate: 1.0)
    choice = choose_rates(config_of("gateskip", train={"learning_rate": 0.002}))
    assert len(asked) == 1 and choice.chosen == {"gateskip": 0.002} and choice.at_edge == {"gateskip": False}


def test_a_grid_that_is_given_stays_as_it_is_and_its_edge_is_said(config_of, monkeypatch):
    asked = _measured_as(monkeypatch, lambda method, rate: rate)
    choice = choose_rates(config_of("gateskip"), [0.001, 0.1])
    assert len(asked) == 1 and choice.at_edge == {"gateskip": True}


def test_a_run_finds_the_training_of_a_rate_beyond_the_grid(config_of, monkeypatch):
    monkeypatch.setattr(rates_module, "GRID", (1.0,))  # its only rate is its edge
    monkeypatch.setattr(rates_module, "EXTENSIONS", 1)
    config = config_of("gateskip", train={"learning_rate": 0.002})
    choice = choose_rates(config, jobs=1)
    assert [(trial.rate, trial.extension) for trial in choice.trials] == [(0.002, False), (0.01, True)]
    recipe = config.train.model_copy(update={"method_learning_rates": {"gateskip": 0.01}})
    (training,) = plan(config.model_copy(update={"train": recipe})).trainings
    assert training.finished and choice.trials[1].records == (training.folder.name,)


@pytest.mark.parametrize(
    ("levels", "compared"),
    [
        pytest.param((0, 0.05, 0.1), lambda level: level == 0.1, id="the-largest-level-below"),
        pytest.param((0,), lambda level: 0.1 < level < 0.9, id="no-level-below"),
    ],
)
def test_a_target_out_of_reach_gives_way_to_a_level_that_all_trials_get_beyond(config_of, levels, compared):
    config = config_of("static_depth[trained=true]", train={"target": (0.9,)}, levels=levels)
    choice = choose_rates(config, [0.001, 0.1], jobs=1)
    assert not choice.failures
    (level,) = {trial.level for trial in choice.trials}
    assert compared(level)


def test_rates_are_compared_at_one_target(config_of):
    with pytest.raises(UsageError, match="one target"):
        choose_rates(config_of("gateskip", train={"target": (0.05, 0.1)}), [0.1])


def test_a_method_without_a_target_has_no_rate_to_choose(config_of):
    with pytest.raises(UsageError, match="dense"):
        choose_rates(config_of(("dense", "gateskip")), [0.1])


@pytest.mark.parametrize(("preset", "best"), [("nano", max), ("real_text", min)])
def test_a_preset_has_the_rates_its_record_chose(preset, best):
    record = json.loads((ROOT / f"docs/records/{preset}_rates.json").read_text(encoding="utf-8"))
    rates = load_config(preset).train.method_learning_rates
    chosen = record["chosen"]
    assert chosen.pop("gateskip[shape=scalar]", rates["gateskip"]) == rates["gateskip"]  # one rate for both shapes
    assert chosen == {name: rate for name, rate in rates.items() if name != "gated"}
    tried = {}
    for trial in record["trials"]:
        tried.setdefault(trial["method"], []).append((trial["score"], trial["rate"]))
    assert all(best(tried[method])[1] == rate for method, rate in chosen.items())


def test_the_protocol_shows_the_trials_of_the_record():
    record = json.loads((ROOT / "docs/records/nano_rates.json").read_text(encoding="utf-8"))
    lines = (ROOT / "docs/protocol.md").read_text(encoding="utf-8").partition("| rate | gateskip |")[2].splitlines()
    names = (
        "gateskip",
        "gateskip[shape=scalar]",
        "mod",
        "skiplayer",
        "router_tuned_mod",
        "skipgpt",
        "informed_routing",
        "prompt_router",
        "d_llm",
    )
    shown = {}
    for line in lines[2 : lines.index("")]:
        rate, *scores = (cell.strip() for cell in line.strip("|").split("|"))
        shown |= {(name, float(rate.split()[0])): score for name, score in zip(names, scores, strict=True) if score}
    told = {(one["method"], one["rate"]): f"{100 * one['score']:.1f}" for one in record["trials"]}
    best = {(method, rate): f"**{told[method, rate]}**" for method, rate in record["chosen"].items()}
    assert shown == told | best
