"""The target rule and the rate rule: what trainings aim at, and what that makes of a plan."""

import json

import pytest

from adaptive_bench.errors import UsageError
from adaptive_bench.runs import plan, run
from adaptive_bench.runs.planning.training_targets import default_target

GATESKIP, MOD = "gateskip", "mod[every=1]"


@pytest.mark.parametrize(
    ("levels", "target"),
    [
        ([(0.0, 0.05, 0.1, 0.15, 0.2, 0.25)], 0.2),
        ([(0.0, 0.1)], 0.1),
        ([(0.0, 0.05, 0.1), (0.0, 0.15, 0.3, 0.45, 0.6)], 0.05),
        ([(0.0,)], 0.2),
    ],
)
def test_the_default_target_is_the_largest_level_but_one(levels, target):
    assert default_target(levels) == target


def test_the_target_reaches_the_training_and_is_kept(config_of):
    config = config_of((GATESKIP, MOD), match_on="net", levels=(0.0, 0.1, 0.2))
    whole = plan(config)
    assert [training.target for training in whole.trainings] == [0.1, 0.1]
    assert run(config).exit_code == 0
    found = [json.loads((training.folder / "target.json").read_text()) for training in whole.trainings]
    assert all(one["axis"] == "net" and one["priced"]["net"] == pytest.approx(0.1, abs=0.01) for one in found)
    assert found[0]["tokens"] > found[1]["tokens"] + 0.02  # a vector gate has to skip more for the same saving


def test_of_several_targets_each_is_trained_and_asked_on_validation(config_of):
    whole = plan(config_of(("dense", GATESKIP), tasks=("nano_math",), train={"target": (0.05, 0.1)}))
    assert [(str(training.spec), training.target) for training in whole.trainings] == [
        ("dense", None),
        (GATESKIP, 0.05),
        (GATESKIP, 0.1),
    ]
    asked = [(sweep.training.target, sweep.split) for sweep in whole.sweeps if str(sweep.spec) == GATESKIP]
    assert asked == [(0.05, "test"), (0.05, "validation"), (0.1, "test"), (0.1, "validation")]
    # Whoever is trained towards none has nothing to choose.
    assert [sweep.split for sweep in whole.sweeps if str(sweep.spec) == "dense"] == ["test"]
    assert len({sweep.folder for sweep in whole.sweeps}) == len(whole.sweeps)


def test_a_rate_of_a_spec_wins_over_its_methods(config_of):
    rates = {"gateskip": 0.5, "gateskip[shape=scalar]": 0.25}
    specs = ("gateskip", "gateskip[shape=scalar]", "gateskip[shape=scalar]@paper", "mod[every=1]")
    whole = plan(config_of(specs, train={"method_learning_rates": rates}))
    found = {str(sweep.spec): sweep.training.content["method_learning_rate"] for sweep in whole.sweeps}
    assert [found[spec] for spec in specs] == [0.5, 0.25, 0.25, None]


def test_a_rate_for_nobody_is_refused(config_of):
    with pytest.raises(UsageError, match="gateskop"):
        plan(config_of(GATESKIP, train={"method_learning_rates": {"gateskop": 0.1}}))


def test_the_base_is_evaluated_as_it_is(config_of):
    config = config_of(("dense", "base"))
    outcome = run(config)
    assert outcome.exit_code == 0
    trained, base = plan(config).trainings
    assert trained.steps == 3 and base.steps == 0
    assert (base.folder / "train.jsonl").read_text() == ""
