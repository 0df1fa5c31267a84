"""The grids of `rates` and `steps`: equal trials on validation documents, found again by a run with the choice."""

import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from optuna.trial import TrialState

from adaptive_bench.config import load_config
from adaptive_bench.errors import UsageError
from adaptive_bench.runs import plan
from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.tuning import Objective, presets, tune, tuned
from adaptive_bench.tuning import search as trial_module
from adaptive_bench.tuning.result import StudyResult

ROOT = Path(__file__).parents[2]
RATES = ["train.method_learning_rate=choice:0.001|0.1"]


def rate_of(trial):
    return float(trial.values["train.method_learning_rate"])


def test_every_method_gets_every_rate_on_validation_documents_and_a_run_finds_the_training(config_of):
    config = config_of(("gateskip", "mod[every=1]"), evaluation={"closeness": 0.01, "limit": 8})
    result = tune(config, None, params=RATES, preset="rates", jobs=1)
    assert {(trial.method, rate_of(trial)) for trial in result.trials} == {
        (method, rate) for method in ("gateskip", "mod[every=1]") for rate in (0.001, 0.1)
    }
    whole = plan(tuned(config, result))
    assert all(training.finished for training in whole.trainings)
    assert all(sweep.finished() is None for sweep in whole.sweeps)  # test documents have not been looked at


def test_where_lower_is_better_the_lowest_score_wins(config_of):
    of_text = {"tasks": ("nano_text",), "train_on": ("nano_qa",), "levels": (0.1,)}
    config = config_of("mod[every=1]", **of_text, evaluation={"closeness": 0.01})
    result = tune(config, None, params=["train.method_learning_rate=choice:1e-5|1e2"], preset="rates", jobs=1)
    best = result.best["mod[every=1]"]
    assert best.value == max(trial.value for trial in result.trials if trial.value is not None) < 0
    with pytest.raises(UsageError, match="one direction"):
        tune(config_of("mod", tasks=("nano_qa", "nano_text")), preset="rates")


@pytest.fixture
def scored(monkeypatch):
    """`scored(score_of)`: trials scored by a formula of method and rate; what is asked for, in turns."""

    def make(score_of):
        asked = []

        def do(self, trials):
            asked.append([(str(trial.search.space.spec), rate_of(trial)) for trial in trials])
            for trial in trials:
                value = score_of(str(trial.search.space.spec), rate_of(trial))
                trial.end(TrialState.FAIL if value is None else TrialState.COMPLETE, value, reason="it burns")

        monkeypatch.setattr(trial_module.TrialRunner, "do", do)
        return asked

    return make


def chosen(result):
    return {method: trial.method_rate for method, trial in result.best.items()}


def test_every_method_is_tried_with_the_same_multiples_of_the_rate_and_the_best_of_each_is_chosen(config_of, scored):
    best = {"gateskip": 0.25, "mod[every=1]": 0.0004, "skiplayer": 0.01}
    asked = scored(lambda method, rate: -abs(math.log(rate / best[method])))
    result = tune(config_of(tuple(best), train={"learning_rate": 0.002}), preset="rates")
    rates = [0.002, 0.0004, 0.01, 0.05, 0.25]
    assert asked == [[(method, rate) for method in best for rate in rates]] and chosen(result) == best
    assert ["at the edge" in line for line in result.notes[:3]] == [True, True, False]
    assert "    gateskip: 0.25" in result.notes[-1].splitlines()


def test_the_lead_of_the_best_rate_is_said(config_of, scored):
    scored(lambda method, rate: rate)
    result = tune(config_of("gateskip", train={"learning_rate": 0.002}, seeds=3), preset="rates")
    assert result.notes[0].startswith("gateskip: 0.25 is ahead of 0.05 by 0.2000, 3 seeds; it is at the edge")


@pytest.mark.parametrize(
    ("score_of", "rate"),
    [
        (lambda method, rate: None if rate > 0.1 else -abs(rate - 0.01), 0.01),  # one that fails decides nothing
        (lambda method, rate: 1.0, 0.002),  # of equal ones the backbone's, and none is at an edge
    ],
)
def test_a_rate_inside_the_grid_is_at_no_edge(config_of, scored, score_of, rate):
    scored(score_of)
    result = tune(config_of("gateskip", train={"learning_rate": 0.002}), preset="rates")
    assert chosen(result) == {"gateskip": rate} and "edge" not in result.notes[0]


def test_rates_that_are_given_stay_as_they_are_and_their_edge_is_said(config_of, scored):
    asked = scored(lambda method, rate: rate)
    result = tune(config_of("gateskip"), None, params=RATES, preset="rates")
    assert asked == [[("gateskip", 0.001), ("gateskip", 0.1)]] and "at the edge" in result.notes[0]


STEPS = ["train.steps=choice:2|4"]
METHODS = ("gateskip[shape=scalar]", "mod[every=1]@paper", "random_skip")


def test_every_method_is_trained_for_every_number_of_steps_and_a_run_finds_the_trainings(config_of):
    measuring = {"limit": 8, "closeness": 0.01}
    config = config_of((*METHODS, "base"), train={"steps": 2}, levels=(0.1,), evaluation=measuring)
    result = tune(config, Objective.parse("score@0.1"), params=STEPS, preset="steps", jobs=1)
    assert {(one.method, one.values["train.steps"]) for one in result.trials} == {
        (method, number) for method in METHODS for number in ("2", "4")
    }
    assert "of 3 pairs apart" in result.notes[1]
    for number in (2, 4):
        whole = plan(config.model_copy(update={"train": config.train.model_copy(update={"steps": number})}))
        assert all(one.finished for one in whole.trainings if one.spec.name != "base")
        assert all(sweep.finished() is None for sweep in whole.sweeps)  # test documents have not been looked at


def test_the_scores_of_documents_are_those_that_a_trial_has_in_the_mean(config_of, monkeypatch):
    means = []
    original = presets._documents
    monkeypatch.setattr(presets, "_documents", lambda *given: means.append(original(*given)) or means[-1])
    config = config_of("mod[every=1]", train={"steps": 2}, levels=(0.15,), evaluation={"closeness": 0.01})
    result = tune(config, None, params=STEPS, preset="steps", jobs=1)
    assert [one.values.mean() for one in means] == pytest.approx([one.value for one in result.trials])


@pytest.fixture
def right_on(config_of, monkeypatch):
    """`right_on(shares)`: what the preset says of methods that are right on such shares of 60 documents, by steps."""

    def make(shares):
        def do(self, trials):
            for trial in trials:
                trial.measured.append(type("Sweep", (), {"task": "nano_qa_ll", "of": trial}))
                trial.end(TrialState.COMPLETE, 0.5)

        def documents(sweeps):
            trial = sweeps[0].of
            share = shares[str(trial.search.space.spec)][int(trial.values["train.steps"])]
            values = np.random.default_rng(0).permutation(60) < 60 * share
            return DocumentScores((1,), tuple(range(60)), values[None].astype(float))

        monkeypatch.setattr(trial_module.TrialRunner, "do", do)
        monkeypatch.setattr(presets, "_documents", documents)
        return tune(config_of(tuple(shares), train={"steps": 2}, levels=(0.15,)), preset="steps").notes

    return make


def test_an_under_trained_method_is_caught(right_on):
    enough, first, second = right_on({"gateskip": {2: 0.1, 4: 0.9, 8: 0.9}, "mod": dict.fromkeys((2, 4, 8), 0.5)})
    assert enough == "4 steps are enough: no order that tests tell apart reverses at 8."
    assert "After 2 steps tests tell 1 of 1 pairs apart; at 4 these reverse: mod and gateskip on nano_qa_ll." in first
    assert first.endswith("scores change beyond doubt for gateskip on nano_qa_ll.") and "change" not in second


def test_where_orders_reverse_to_the_end_nothing_is_enough(right_on):
    notes = right_on({"gateskip": {2: 0.1, 4: 0.9, 8: 0.1}, "mod": dict.fromkeys((2, 4, 8), 0.5)})
    assert notes[0] == "None of 2, 4 steps is shown to be enough."


@pytest.mark.parametrize(
    ("preset", "methods", "asked", "rule"),
    [
        ("rates", ("dense", "gateskip"), {}, "trained towards a saving, got dense"),
        ("rates", "gateskip", {"params": STEPS}, "The preset tries"),
        ("rates", "gateskip", {"params": ["train.method_learning_rate=log:1e-3:1"]}, "The preset tries"),
        ("steps", "base", {"objective": Objective.parse("score@0.12")}, "methods that are trained"),
        ("steps", "mod", {}, "at one level, got area and 0, 0.15"),
        (None, "mod", {"params": STEPS}, "--preset steps"),
    ],
)
def test_what_cannot_be_compared_is_refused(config_of, preset, methods, asked, rule):
    with pytest.raises(UsageError, match=rule):
        tune(config_of(methods, levels=(0, 0.15)), **asked, preset=preset)


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


def test_the_protocol_says_what_the_records_of_rates_and_steps_say():
    page = re.sub(r"\s+", " ", (ROOT / "docs/protocol.md").read_text(encoding="utf-8"))
    rates = json.loads((ROOT / "docs/records/nano_rates.json").read_text(encoding="utf-8"))
    told = {(one["method"], one["rate"]): f"{100 * one['score']:.1f}" for one in rates["trials"]}
    usual, gates, mod = load_config("nano").train.learning_rate, "gateskip[shape=scalar]", "mod"
    assert rates["chosen"] == rates["chosen"] | {gates: 25 * usual, mod: usual / 5}
    said = f"keep {told[gates, usual]} % at the backbone's rate and {told[gates, 25 * usual]} % at 25 times it"
    assert said in page
    assert f"MoD keeps {told[mod, usual]} at the backbone's and {told[mod, usual / 5]} at a fifth of it" in page

    steps = json.loads((ROOT / "docs/records/nano_steps.json").read_text(encoding="utf-8"))
    assert steps["enough"] == 320 and not any(one["reversals"] for one in steps["doublings"])
    found = {(one["method"], one["steps"]): one["score"] for one in steps["scores"] if one["task"] == "nano_math"}
    gained = [
        round(100 * (found[method, 1280] - found[method, 320])) for method in ("gateskip", "random_skip[trained=true]")
    ]
    assert (
        "from 320 to 1280 steps GateSkip gains {} points on nano_math, trained random skipping {}".format(*gained)
        in page
    )


# The preset of the nano board against the record of the trials that chose its parameters.


DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("nano_trials", "nano_trials_later", "nano_trials_rerated")
RECORDS = [StudyResult.read(DOCS / f"records/{name}.json") for name in NAMES]
RECORD_OF = {name: record for record in RECORDS for name in record.best}  # of methods tried again the later one
PAGE = (DOCS / "tuning.md").read_text(encoding="utf-8")


def test_the_nano_board_has_what_equal_trials_chose_and_other_seeds_confirmed():
    for record in RECORDS:
        assert {*Counter(trial.method for trial in record.trials if trial.state != "refused").values()} == {5}
    assert {record.best[name].spec for name, record in RECORD_OF.items()} <= {*load_config("nano_all").methods}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_the_seeds_that_confirmed_are_not_on_the_board(record):
    assert not {*record.definition["confirm"]} & {*load_config("nano_all").seeds}
    assert {trial.state for trial in record.confirmed} == {"complete"}


def test_the_page_shows_the_record():
    shown = re.findall(r"^\| (\w+) \|((?: [0-9.]+ \|){2}) [^|]+\|(.*)\|$", PAGE, re.MULTILINE)
    assert {name for name, *_ in shown} == {"gateskip", "mod"}
    for name, searched, confirmed in shown:
        record = RECORDS[0]
        values = [one.value for one in record.trials if (one.method, one.state) == (name, "complete")]
        assert [float(text) for text in searched.split("|")[:2]] == pytest.approx([values[0], max(values)], abs=5e-4)
        again = [one for one in record.confirmed if one.method == name]
        texts = [f"{one.value:.3f}" for one in again]
        expected = [f"**{text}**" if one == record.best[name] else text for one, text in zip(again, texts, strict=True)]
        assert [text.strip() for text in confirmed.split("|")] == expected
