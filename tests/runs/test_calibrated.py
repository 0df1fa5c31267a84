"""A training as it is evaluated: calibrated for each task on text of its own, of the size and kind the recipe says."""

from types import SimpleNamespace

import pytest

from adaptive_bench.runs import plan, run
from adaptive_bench.runs.evaluation_work import Calibrated
from adaptive_bench.runs.run_table import _calibration_warnings
from adaptive_bench.training.generated_text import generated_text

TASKS = ("nano_math", "nano_qa_ll")


def _calibrations(config):
    return {
        sweep.task: sweep.record.read("calibration") for sweep in plan(config).sweeps if str(sweep.spec) == "gateskip"
    }


def test_each_task_has_text_of_its_own(config_of):
    config = config_of("gateskip", tasks=TASKS)
    assert run(config).exit_code == 0
    found = _calibrations(config)
    assert {about["examples"] for about in found.values()} == {4}
    assert found["nano_math"]["tokens"] != found["nano_qa_ll"]["tokens"]
    assert all(about["per"] == "task" and about["text"] == "gold" for about in found.values())


def test_no_more_is_asked_for_than_the_end_of_the_dial_skips(config_of):
    """Prompts never exit, so that the last values of calm's dial would all be one."""
    config = config_of("calm", levels=[0.3])
    assert run(config).exit_code == 0
    (sweep,) = plan(config).sweeps
    model, end = Calibrated(sweep).model, sweep.record.max_saved_tokens
    assert 0 < end < model.method.max_saving and max(sweep.finished()) <= end
    (last,) = [one for one in sweep.record.read("calibration")["dials"] if one["saving"] == max(sweep.finished())]
    assert last["realised"] == pytest.approx(last["requested"], abs=0.05)


def test_pooled_text_is_the_same_for_all(config_of):
    config = config_of("gateskip", tasks=TASKS, evaluation={"calibration": "pooled"})
    assert run(config).exit_code == 0
    found = _calibrations(config)
    assert found["nano_math"] == found["nano_qa_ll"]


@pytest.fixture
def calibrated(config_of):
    config = config_of("gateskip", evaluation={"calibration_text": "written"})
    assert run(config).exit_code == 0
    (sweep,) = plan(config).sweeps
    return Calibrated(sweep)


def test_text_may_be_what_the_model_writes(calibrated, config_of):
    about = _calibrations(calibrated.config)["nano_qa_ll"]
    assert about["text"] == "written" and about["examples"] == 4
    gold = config_of("gateskip")
    assert plan(gold).sweeps[0].folder != plan(calibrated.config).sweeps[0].folder
    assert plan(gold).trainings[0].folder == plan(calibrated.config).trainings[0].folder


def test_written_answers_follow_the_prompts_and_end(calibrated):
    text = calibrated._text
    again = generated_text(calibrated.model, text, calibrated.tokenizer, batch_size=2)
    by_prompt = {example.token_ids[: example.prompt_length]: example for example in text}
    end = calibrated.tokenizer.eos_token_id
    for example in again:
        assert example.token_ids[: example.prompt_length] in by_prompt
        assert example.token_ids[-1] == end
    assert calibrated.model.dial == calibrated.model.method.dial.skip_nothing


def test_thresholds_that_miss_are_one_warning_of_a_sweep():
    def warned(*dials):
        said = [{"requested": asked, "realised": got, "status": status} for asked, got, status in dials]
        record = SimpleNamespace(read=lambda name: {"dials": said})
        sweep = SimpleNamespace(spec="mine", task="a", training=SimpleNamespace(seed=1), record=record)
        return _calibration_warnings(sweep)

    assert warned((0.1, 0.1, "ok"), (0.2, 0.185, "warn")) == []
    (text,) = warned((0.1, 0.1, "ok"), (0.2, 0.14, "fail"), (0.3, 0.18, "fail"))
    assert text.startswith("mine on a, seed 1: at 2 of 3 dial values") and "farthest off 18% in place of 30%" in text
