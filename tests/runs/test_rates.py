"""The rate rule: equal trials on one grid, judged on validation documents, found again by a run with the choice."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from adaptive_bench.config import load_config
from adaptive_bench.errors import UsageError
from adaptive_bench.runs import plan
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
    choice = choose_rates(config_of("mod[every=1]", tasks=("nano_text",), train_on=("nano_qa",)), [1e-5, 1e3], jobs=1)
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


def test_a_target_out_of_reach_gives_way_to_what_all_trials_reach(config_of):
    config = config_of("static_depth[trained=true]", train={"target": (0.9,)})
    choice = choose_rates(config, [0.001, 0.1], jobs=1)
    assert not choice.failures
    (level,) = {trial.level for trial in choice.trials}
    assert 0.1 < level < 0.9


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
