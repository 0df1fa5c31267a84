"""A recipe made smaller to the time there is, by a forecast that tests give."""

import pytest

from adaptive_bench.runs import estimate as module
from adaptive_bench.runs.estimate import Limit, fitted
from adaptive_bench.runs.forecast import Asked
from adaptive_bench.spec import MethodSpec

METHODS = "dense,gateskip,random_skip"


@pytest.fixture(autouse=True)
def speed(monkeypatch):
    """Seconds of a sequence, of a document and of a token that is written, to be changed."""
    of = {"sequence": 1.0, "document": 1.0, "token": 0.0}

    class Work:
        reading_s = 0.225

        def __init__(self, config, empty=None, tokenizer=None):
            self.config = config

        def asking(self, config):
            return Work(config)

        def sequence_s(self, spec):
            return of["sequence"]

        def document_s(self, task):
            return of["document"] + of["token"] * (self.config.evaluation.max_new_tokens or 100)

        def asked(self, task):
            return Asked(100, 1.0, 1.0)

    monkeypatch.setattr(module, "Workload", Work)
    return of


@pytest.fixture
def config(config_of):
    """Two trainings of 40 steps of 8, and 1 + 3 + 3 dial values of 30 documents: 640 and 210 s, and calibration."""
    evaluation = {"limit": 30, "calibration_examples": 20}
    return config_of(METHODS, train={"steps": 40, "batch_size": 8, "warmup_steps": 4}, evaluation=evaluation)


def test_what_fits_stays_as_it_is_and_the_same_command_finds_the_same_run_again(config, speed):
    assert fitted(config, {}, Limit(2000, steps=5, documents=4)) == (config, "")
    limit = Limit(400, steps=5, documents=4)
    first = fitted(config, {}, limit)
    speed["sequence"] = 7.0
    assert fitted(config, {}, limit) == first
    absent = config.model_copy(update={"model": "/no/such/folder"})  # for the checks
    assert fitted(absent, {}, Limit(1, steps=5, documents=4)) == (absent, "")


def test_sequences_of_a_step_go_before_steps(config):
    small, text = fitted(config, {}, Limit(400, steps=5, documents=4))
    assert (small.train.batch_size, small.train.steps, small.train.warmup_steps) == (4, 35, 4)
    assert small.evaluation.limit < 30 and "4 sequences a step instead of 8" in text
    smaller, text = fitted(config, {}, Limit(200, steps=5, documents=4))
    assert smaller.train.batch_size == 4 and 5 < smaller.train.steps < 25 and "steps instead of 40" in text
    least, _ = fitted(config, {}, Limit(1, steps=5, documents=4))
    assert (least.train.steps, least.evaluation.limit) == (5, 4) and least.methods == config.methods


def test_texts_are_shortened_before_anything_else(config, speed):
    limit = Limit(600, steps=5, documents=4, answer_tokens=16)
    assert fitted(config, {}, limit)[0].evaluation.max_new_tokens is None  # nothing would be won
    speed["token"] = 0.1
    longer = config.model_copy(update={"seeds": (2,)})  # another run
    small, text = fitted(longer, {}, limit)
    assert small.evaluation.max_new_tokens == 16 and "16 tokens an answer at most." in text
    named = {"max_new_tokens": 99}
    given = longer.model_copy(update={"evaluation": longer.evaluation.model_copy(update=named)})
    assert fitted(given, {"evaluation": named}, limit)[0].evaluation.max_new_tokens == 99


def test_what_the_command_line_names_stays(config):
    named = {"train": {"steps": 40, "batch_size": 8}, "evaluation": {"limit": 30}, "methods": METHODS}
    small, text = fitted(config, named, Limit(1, steps=5, documents=4, drops=True))
    assert small.train == config.train and small.evaluation.limit == 30 and small.methods == config.methods
    assert "calibration examples" in text


def test_a_first_look_leaves_out_the_last_tasks_and_methods(config, speed, monkeypatch):
    monkeypatch.setattr(module, "_LEAST_TASKS", 1)
    monkeypatch.setattr(module, "_LEAST_METHODS", 2)
    both = config.model_copy(update={"tasks": ("nano_qa_ll", "nano_text")})
    small, text = fitted(both, {}, Limit(1, steps=5, documents=4, drops=True))
    assert small.tasks == ("nano_qa_ll",) and small.methods == ("dense", str(MethodSpec.parse("gateskip")))
    assert "without the tasks nano_text; without the methods random_skip" in text
