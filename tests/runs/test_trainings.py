"""The target rule and the rate rule: what trainings aim at, and what that makes of a plan; and the text they read."""

import shutil
from dataclasses import replace

import pytest

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, PluginFault, UsageError
from adaptive_bench.evaluation import lookup
from adaptive_bench.method import DEFAULT_TARGET
from adaptive_bench.runs import plan, run, training_text
from adaptive_bench.runs import training_work as pricing
from adaptive_bench.runs.run_plan import auto_level
from adaptive_bench.runs.trained import run_name
from adaptive_bench.spec import MethodSpec
from adaptive_bench.task import Example
from adaptive_bench.training import loop

GATESKIP, MOD, STATIC = "gateskip", "mod[every=1]", "static_depth[trained=true]"


@pytest.mark.parametrize(
    ("layers", "number"),
    [(1, 1), (2, 1), (6, 1), (8, 1), (10, 1), (12, 2), (16, 2), (24, 4), (28, 4), (30, 4), (32, 5)],
)
def test_a_level_that_nobody_gives_is_the_number_of_layers_nearest_to_15_percent(layers, number):
    """Of two that are as near the smaller one, as of ten or thirty layers."""
    nearest = min(range(1, layers + 1), key=lambda one: (abs(100 * one - 15 * layers), one))
    assert auto_level(layers) == nearest / layers == number / layers


def test_on_an_axis_on_which_layers_differ_it_is_15_percent(config_of):
    assert plan(config_of(levels=None, match_on="layers")).sweeps[0].levels == (0.5,)  # of two layers
    assert plan(config_of(levels=None, match_on="net")).sweeps[0].levels == (0.15,)


def test_the_target_reaches_the_training_and_is_kept(config_of):
    config = config_of((GATESKIP, MOD), match_on="net", levels=(0.0, 0.1))
    whole = plan(config)
    assert [training.target for training in whole.trainings] == [0.1, 0.1]
    assert run(config).exit_code == 0
    found = [training.record.read("target") for training in whole.trainings]
    assert all(one["axis"] == "net" and one["priced"]["net"] == pytest.approx(0.1, abs=0.01) for one in found)
    assert found[0]["tokens"] > found[1]["tokens"] + 0.02  # a vector gate has to skip more for the same saving


def test_a_training_that_would_start_from_several_is_refused(config_of, monkeypatch):
    monkeypatch.setattr(
        registry.get("methods", "mod"), "starts_from", classmethod(lambda cls, spec: MethodSpec(GATESKIP))
    )
    assert plan(config_of(MOD, levels=(0.0, 0.1))).trainings[1].base.spec.name == GATESKIP
    with pytest.raises(PluginFault, match="gives gateskip, which is trained 2 times"):
        plan(config_of(MOD, levels=(0.1, 0.2)))


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


def test_each_level_is_trained_for_and_judged_on_its_own_training(config_of):
    """Nothing saved goes with the smallest; who is trained towards no saving is judged at all levels."""
    whole = plan(config_of(("dense", GATESKIP, STATIC, "calm"), tasks=("nano_math",), levels=(0.0, 0.05, 0.1)))
    found = [(str(one.spec), one.training.target, one.levels, one.split) for one in whole.sweeps]
    assert found == [
        ("dense", None, (0.0, 0.05, 0.1), "test"),
        (GATESKIP, 0.05, (0.0, 0.05), "test"),
        (GATESKIP, 0.1, (0.1,), "test"),
        (STATIC, 0.05, (0.0, 0.05), "test"),
        (STATIC, 0.1, (0.1,), "test"),
        ("calm", None, (0.0, 0.05, 0.1), "test"),
    ]
    assert len({sweep.folder for sweep in whole.sweeps}) == len({sweep.training.folder for sweep in whole.sweeps}) == 6
    assert not any(one.training.has_single_target for one in whole.sweeps if one.training.target)


def test_with_one_target_there_is_one_training_that_is_judged_at_all_levels(config_of):
    whole = plan(config_of(("dense", GATESKIP), levels=(0.0, 0.05, 0.1), train={"target": 0.1}))
    assert [(one.training.target, one.levels) for one in whole.sweeps] == [
        (None, (0.0, 0.05, 0.1)),
        (0.1, (0.0, 0.05, 0.1)),
    ]
    at_levels = plan(config_of(GATESKIP, levels=(0.05, 0.1)))
    assert at_levels.trainings[1].folder == whole.trainings[1].folder  # equal targets, whoever asks for them
    assert all(one.has_single_target for one in whole.trainings)
    # Without a level that saves there is a target all the same.
    (sweep,) = plan(config_of(GATESKIP, levels=(0.0,))).sweeps
    assert (sweep.training.target, sweep.levels) == (DEFAULT_TARGET, (0.0,))


@pytest.mark.parametrize("match_on", ["layers", "tokens"])
def test_a_cut_of_layers_is_trained_without_as_many_as_its_level_and_measured_there(config_of, match_on):
    """One layer of two saves half of what the layers cost, whatever the head does."""
    config = config_of(STATIC, levels=(0.5,), match_on=match_on, evaluation={"closeness": 0.001})
    assert run(config, jobs=1).exit_code == 0
    (sweep,) = plan(config).sweeps
    found = sweep.training.record.read("target")
    assert (found["tokens"], found["saving"], found["axis"]) == (pytest.approx(0.5), 0.5, match_on)
    ((asked, point),) = sweep.finished().items()
    assert asked == 0.5 and point.saved("layers") == pytest.approx(0.5, abs=1e-9) and point.dial == 1
    assert point.saved("net") < 0.45, "the head runs all the same"


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


@pytest.fixture
def small_task(monkeypatch):
    """`small_task(training)`: `nano_qa_ll` with other training text."""
    find = lookup.find_task

    def put(training):
        changed = replace(find("nano_qa_ll"), training=training)
        monkeypatch.setattr(training_text, "find_task", lambda name: changed if name == changed.name else find(name))

    return put


def test_tasks_have_equal_shares_and_a_small_one_repeats_aloud(config_of, small_task, lines):
    small = [Example(f"p{number}", "c") for number in range(3)]
    small_task(lambda request: small)
    config = config_of(tasks=("nano_math", "nano_qa_ll"), train={"steps": 5, "batch_size": 2})
    text = training_text.draw_training(config, 1, lines)
    assert len(text) == 10 and sum(example in small for example in text) == 5
    assert lines.lines == ["nano_qa_ll has 3 training examples, 5 are wanted: they repeat."]


def test_calibration_text_is_not_training_text(config_of, lines):
    config = config_of(train={"steps": 50, "batch_size": 4}, evaluation={"calibration_examples": 20})
    seen = {example.prompt for example in training_text.draw_training(config, 1, lines)}
    held_out = training_text.draw_calibration(config, 1)
    assert len(held_out) == 20 and not seen & {example.prompt for example in held_out}


def test_train_on_names_other_tasks_than_those_evaluated_and_one_without_text_is_an_error(config_of, small_task, lines):
    tasks = training_text.training_tasks(config_of(train_on=("nano_math",)))
    assert [task.name for task in tasks] == ["nano_math"]
    small_task(lambda request: [])
    with pytest.raises(EnvironmentProblem, match="no train text"):
        training_text.draw_training(config_of(), 1, lines)
    small_task(None)
    with pytest.raises(UsageError, match="--train-on"):
        training_text.training_tasks(config_of())


# Training curves for others: only when asked for, and without any effect on what is computed.


class Kept:
    """A tracker that remembers."""

    def __init__(self):
        self.values, self.said, self.events = {}, {}, []

    def start(self):
        self.events.append("start")

    def store_init_configuration(self, values):
        self.said |= values

    def log(self, values, step):
        self.values[step] = values

    def finish(self):
        self.events.append("finish")


@pytest.fixture
def kept(monkeypatch):
    tracker = Kept()
    monkeypatch.setattr(loop, "find_spec", lambda name: name)
    monkeypatch.setattr(loop.Tracking, "_tracker", lambda self, name, done: tracker)
    return tracker


def test_every_step_is_tracked_where_it_is_asked_for_which_is_in_no_key(config_of, kept):
    config = config_of("gateskip")
    assert run(config).exit_code == 0 and kept.events == []
    tracked = config_of("gateskip", track="wandb")
    assert run_name(tracked) == run_name(config)
    (training,) = plan(tracked).trainings
    assert training.finished
    shutil.rmtree(training.folder)
    assert run(tracked).exit_code == 0
    assert sorted(kept.values) == [1, 2, 3] and kept.events == ["start", "finish"]
    assert {"loss", "lr", "gradient_norm", "tokens"} < set(kept.values[1])
    assert kept.said["record"] == training.folder.name


def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_done(config_of, monkeypatch):
    monkeypatch.setattr(loop, "find_spec", lambda name: None)
    config = config_of("dense", track="trackio")
    with pytest.raises(UsageError, match=r"adaptive-bench\[trackio\]"):
        run(config)
    assert not (config.out / "records").exists()


def test_tensorboard_shows_the_curve_of_a_resumed_training_once(config_of):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = config_of("dense", track="tensorboard")
    assert run(config).exit_code == 0
    (folder,) = (path for path in (config.out / "tracking" / "tensorboard").iterdir())
    found = EventAccumulator(str(folder))
    found.Reload()
    assert [event.step for event in found.Scalars("loss")] == [1, 2, 3]
