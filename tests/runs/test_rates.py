"""The rate rule: equal trials on one grid, judged on validation documents, found again by a run with the choice."""

import json
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
    assert all(cell.finished for cell in whole.cells)
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


def test_the_preset_has_the_rates_its_record_chose():
    record = json.loads((ROOT / "docs/records/nano_rates.json").read_text(encoding="utf-8"))
    preset = load_config("nano").train.method_learning_rates
    chosen = record["chosen"]
    assert chosen.pop("gateskip[shape=scalar]") == preset["gateskip"]  # one rate for both shapes
    assert chosen == {name: rate for name, rate in preset.items() if name != "gated"}
    best = {}
    for trial in record["trials"]:
        best.setdefault(trial["method"], []).append((trial["score"], trial["rate"]))
    assert all(max(best[method])[1] == rate for method, rate in chosen.items())
