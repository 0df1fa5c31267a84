import pytest

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation import lookup
from adaptive_bench.runs import training_text
from adaptive_bench.task import Example


@pytest.fixture
def small_task(monkeypatch):
    """`nano_qa_ll` with only three training examples."""
    whole = lookup.find_task("nano_qa_ll")

    def replace(examples):
        def find(name):
            if name != "nano_qa_ll":
                return lookup.find_task(name)
            return whole.__class__(**(whole.__dict__ | {"training": lambda request: examples}))

        monkeypatch.setattr(training_text, "find_task", find)

    return replace


def test_tasks_have_equal_shares_and_a_small_one_repeats_aloud(config_of, small_task, lines):
    small = [Example(f"p{number}", "c") for number in range(3)]
    small_task(small)
    config = config_of(tasks=("nano_math", "nano_qa_ll"), train={"steps": 5, "batch_size": 2})
    text = training_text.draw_training(config, 1, lines)
    assert len(text) == 10 and sum(example in small for example in text) == 5
    assert lines.lines == ["nano_qa_ll has 3 training examples, 5 are wanted: they repeat."]


def test_calibration_text_is_not_training_text(config_of, lines):
    config = config_of(train={"steps": 50, "batch_size": 4}, evaluation={"calibration_examples": 20})
    seen = {example.prompt for example in training_text.draw_training(config, 1, lines)}
    held_out = training_text.draw_calibration(config, 1)
    assert len(held_out) == 20 and not seen & {example.prompt for example in held_out}


def test_train_on_names_other_tasks_than_those_evaluated(config_of):
    tasks = training_text.training_tasks(config_of(train_on=("nano_math",)))
    assert [task.name for task in tasks] == ["nano_math"]


def test_a_task_without_text_is_an_error(config_of, small_task, lines, monkeypatch):
    small_task([])
    with pytest.raises(EnvironmentProblem, match="no train text"):
        training_text.draw_training(config_of(), 1, lines)
    mute = lookup.find_task("nano_qa_ll")
    monkeypatch.setattr(training_text, "find_task", lambda name: mute.__class__(**(mute.__dict__ | {"training": None})))
    with pytest.raises(UsageError, match="--train-on"):
        training_text.training_tasks(config_of())
