"""The target rule and the rate rule: what trainings aim at, and what that makes of a plan."""

from dataclasses import replace

import pytest

from adaptive_bench.runs import plan, run
from adaptive_bench.runs.checks.model import model_facts
from adaptive_bench.runs.outcome.table import outcome_of
from adaptive_bench.runs.planning.training_targets import default_target, layer_shares
from adaptive_bench.runs.work import target as pricing

GATESKIP, MOD, STATIC = "gateskip", "mod[every=1]", "static_depth[trained=true]"


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
    found = [training.record.read("target") for training in whole.trainings]
    assert all(one["axis"] == "net" and one["priced"]["net"] == pytest.approx(0.1, abs=0.01) for one in found)
    assert found[0]["tokens"] > found[1]["tokens"] + 0.02  # a vector gate has to skip more for the same saving


def test_a_target_is_priced_on_a_few_thousand_tokens_at_most(config_of, monkeypatch):
    """A real model's texts are long, and reading all of them would take as long as the training."""
    tokens = []
    price = pricing.price

    def counted(model, batches, *arguments):
        tokens.append(sum(int(batch["attention_mask"].sum()) for batch in batches))
        return price(model, batches, *arguments)

    monkeypatch.setattr(pricing, "price", counted)
    assert run(config_of(MOD, match_on="net", levels=(0.0, 0.1)), jobs=1).exit_code == 0
    monkeypatch.setattr(pricing, "_PRICING_TOKENS", tokens[0] // 3)
    assert run(config_of(MOD, match_on="net", levels=(0.0, 0.1), seeds=(2,)), jobs=1).exit_code == 0
    assert tokens[0] < 5_000 and 0.2 * tokens[0] < tokens[1] < 0.45 * tokens[0]


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


def test_of_targets_that_do_alike_the_smaller_serves_in_whatever_order_records_are_read(config_of):
    """At such a learning rate the models of all targets are the same one."""
    config = config_of("random_skip[trained=true]", train={"learning_rate": 1e-30, "target": (0.1, 0.2)})
    assert run(config).exit_code == 0
    whole = plan(config)
    rows, again = (outcome_of(one).rows for one in (whole, replace(whole, sweeps=whole.sweeps[::-1])))
    assert {row.target for row in rows if row.score is not None} == {0.1}
    assert {row.target for row in again if row.score is not None} == {0.1}


@pytest.mark.parametrize(
    ("layers", "saving", "numbers"),
    [(4, 0.2, 1), (4, 0.25, 1), (4, 0.26, 2), (4, 0.5, 2), (4, 1.0, 4), (10, 0.2, 2), (10, 0.21, 3)],
)
def test_numbers_of_layers_rise_to_the_first_that_saves_enough(make_backbone, layers, saving, numbers):
    """Of tokens a layer saves its share of the layers; of FLOPs less, because the head runs all the same."""
    model = make_backbone("llama", num_hidden_layers=layers)
    shares = layer_shares(model, saving, "tokens")
    assert shares == tuple((number + 1) / layers for number in range(numbers))
    maps = sum(part.numel() for name, part in model.named_parameters() if "_proj" in name)
    least = maps / layers / (maps + model.lm_head.weight.numel())
    of_net = layer_shares(model, saving, "net")
    assert len(of_net) == layers or len(of_net) * least >= saving > (len(of_net) - 1) * least


def test_nano_is_trained_for_two_layers_too():
    """One of its layers saves 11 to 15 % of net FLOPs, so that targets of 10 and 20 % are both next to one layer."""
    assert layer_shares(model_facts("nano").empty, 0.2, "net") == (1 / 6, 2 / 6)


def test_of_several_targets_whole_layers_are_trained_number_by_number(config_of):
    """Targets of 10 and 20 % both come to one layer of two: the second one is never skipped in training. A target for
    which both are needed adds that number, and a single target stays what it is for everybody.
    """
    for target, trained in (((0.1, 0.2), [0.5]), ((0.2, 0.6), [0.5, 1.0]), ((0.2,), [0.2])):
        whole = plan(config_of(("dense", STATIC, GATESKIP), tasks=("nano_math",), train={"target": target}))
        assert [one.target for one in whole.trainings if str(one.spec) == STATIC] == trained
        assert [one.target for one in whole.trainings if str(one.spec) == GATESKIP] == list(target)
        asked = [sweep.split for sweep in whole.sweeps if str(sweep.spec) == STATIC]
        assert asked == ["test", "validation"] * len(trained) if len(trained) > 1 else asked == ["test"]
        assert len({training.folder for training in whole.trainings}) == len(whole.trainings)


def test_rows_say_which_number_of_layers_their_model_was_trained_without(config_of):
    config = config_of(
        STATIC,
        tasks=("nano_math",),
        levels=(0.0, 0.25, 0.5),
        match_on="net",
        train={"target": (0.2, 0.6)},
        evaluation={"grid": (0.0, 0.5)},
    )
    outcome = run(config, jobs=1)
    assert outcome.exit_code == 0
    for training in plan(config).trainings:
        found = training.record.read("target")
        assert found["tokens"] == found["saving"] == training.target and found["whole_layers"]
        assert found["priced"]["tokens"] == pytest.approx(training.target)
    rows = [row for row in outcome.rows if row["axis"] == "tokens" and row["phase"] == "all"]
    assert {row["level"] for row in rows} == {0.0, 0.25, 0.5}
    for row in rows:
        assert row["trained_without"] == row["target"] in (0.5, 1.0)
        assert row["saved_tokens"] == pytest.approx(row["level"])
        assert row["target_axis"] is None  # a number of layers is the same on every axis


def test_methods_that_skip_token_by_token_are_not_said_to_be_trained_without_layers(config_of):
    outcome = run(config_of(GATESKIP), jobs=1)
    assert {row["trained_without"] for row in outcome.rows} == {None}
    assert {row["target_axis"] for row in outcome.rows} == {"tokens"}


def test_a_rate_of_a_spec_wins_over_its_methods(config_of):
    rates = {"gateskip": 0.5, "gateskip[shape=scalar]": 0.25}
    specs = ("gateskip", "gateskip[shape=scalar]", "gateskip[shape=scalar]@paper", "mod[every=1]")
    whole = plan(config_of(specs, train={"method_learning_rates": rates}))
    found = {str(sweep.spec): sweep.training.content["method_learning_rate"] for sweep in whole.sweeps}
    assert [found[spec] for spec in specs] == [0.5, 0.25, 0.25, None]


def test_the_base_is_evaluated_as_it_is(config_of):
    config = config_of(("dense", "base"))
    outcome = run(config)
    assert outcome.exit_code == 0
    trained, base = plan(config).trainings
    assert trained.steps == 3 and base.steps == 0
    assert (base.folder / "train.jsonl").read_text() == ""
