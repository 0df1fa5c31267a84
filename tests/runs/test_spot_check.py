"""Records of other code: used where part of them comes out alike, made anew where it does not."""

import json
import re
import shutil

import pytest
import torch

from adaptive_bench import code_digest
from adaptive_bench.engine import decode, masked, packed
from adaptive_bench.model import dial_solving
from adaptive_bench.progress import Line, SilentReporter
from adaptive_bench.runs import plan, repeated, run, spot_check
from adaptive_bench.runs.work import calibrated, recording
from adaptive_bench.training import encoding, order, schedule, target

pytestmark = pytest.mark.slow


class Said(SilentReporter):
    """Keeps the lines of a run that are about other code."""

    def __init__(self):
        self.lines = []

    def emit(self, event):
        match event:
            case Line(text) if "other code" in text:
                self.lines.append(text)


def says(config, **how):
    reporter = Said()
    outcome = run(config, reporter, jobs=1, **how)
    assert not outcome.failures
    return reporter.lines, outcome.rows


@pytest.fixture
def done(config_of):
    config = config_of("gateskip")
    return config, run(config, jobs=1).rows


@pytest.fixture
def other_code(monkeypatch):
    """From now on the code is said to be other code than the one that made what is there."""

    def change(config, core="changed"):
        for file in config.out.glob("runs/*/remembered.json"):  # it holds for the bytes of the code
            file.unlink()
        for module in (spot_check, recording):
            monkeypatch.setattr(module, "code_digest", lambda method, out: f"{core}.own")

    return change


def records(config):
    return {file: file.stat().st_ino for file in (config.out / "records").rglob("0*.json")}


def test_the_same_code_repeats_nothing(done, monkeypatch):
    config, rows = done
    monkeypatch.setattr(repeated, "repeat_first_steps", None)
    assert says(config) == ([], rows)
    (config.out / "runs").rename(config.out / "runs_before")  # nothing is remembered
    assert says(config)[0] == []


def test_other_code_that_computes_the_same_is_checked_once(done, other_code, monkeypatch):
    config, rows = done
    before = records(config)
    other_code(config)
    (line,), again = says(config)
    assert "is alike" in line and "train gateskip" in line and "evaluate gateskip" in line
    assert again == rows and records(config) == before
    monkeypatch.setattr(repeated, "repeat_first_steps", None)
    assert says(config)[0] == []


def test_a_line_of_the_engine_that_moves_numbers_is_caught(done, other_code, monkeypatch):
    config, rows = done
    before = records(config)
    for module in (masked, packed, decode):
        monkeypatch.setattr(module, "add_update", larger_update)
    other_code(config)
    lines, _ = says(config, recheck=False)
    assert lines == [] and records(config) == before
    other_code(config)
    (line,), again = says(config)
    assert "loss" in line and "engine" in line and "made anew" in line
    aside = list((config.out / spot_check.ASIDE).rglob("0.json"))
    assert len(aside) == len([file for file in before if file.name == "0.json"])
    assert records(config).values() != before.values() and again != rows
    assert says(config)[0] == []
    tables = aside[0].parents[3].rglob("runs/*/table.json")
    assert [json.loads(table.read_text()) for table in tables] == [rows]  # of records that are gone


add_update = masked.add_update


def larger_update(call, site, hidden, update, scale, keep):
    return add_update(call, site, hidden, 1.1 * update, scale, keep)


def test_records_without_weights_have_their_training_repeated(done, other_code):
    config, rows = done
    shutil.rmtree(plan(config).trainings[0].checkpoint)
    (plan(config).trainings[0].folder / "without_weights.json").write_text('{"schema": 2}')
    other_code(config)
    lines, again = says(config)
    assert again == rows and all("train gateskip" in line and "evaluate" not in line for line in lines)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("x = 1  # a comment\n", "x = 1\n", True),
        ('def f():\n    """Words."""\n    return 2\n', 'def f():\n    """Others."""\n\n    return 2\n', True),
        ("x = 1\n", "x = 2\n", False),
        ('def f():\n    return "words"\n', 'def f():\n    return "others"\n', False),
    ],
)
def test_comments_and_docstrings_mean_nothing(one, other, same):
    assert (code_digest._meaning(one.encode()) == code_digest._meaning(other.encode())) == same


def test_the_digest_of_code_read_before_is_found_again(tmp_path, monkeypatch):
    digest = code_digest.code_digest.__wrapped__
    first = digest("gateskip", tmp_path)
    code_digest._shared.cache_clear()
    monkeypatch.setattr(code_digest, "_meaning", lambda source: "never asked for what all methods share")
    assert digest("gateskip", tmp_path).partition(".")[0] == first.partition(".")[0]
    (tmp_path / code_digest.FILE).write_text("{}")
    code_digest._shared.cache_clear()
    assert digest("gateskip", tmp_path).partition(".")[0] != first.partition(".")[0]
    code_digest._shared.cache_clear()


def test_a_model_that_cannot_be_loaded_leaves_its_records_in_use(done, other_code):
    config, rows = done
    (plan(config).trainings[0].checkpoint / "adaptive.json").unlink()
    other_code(config)
    for _ in range(2):  # said again where the run looks again
        lines, again = says(config)
        assert "unchecked" in lines[0] and "adaptive.json" in lines[0] and again == rows
        other_code(config)


def test_what_does_not_move_is_alike(done):
    config, _ = done
    training, (sweep,) = plan(config).trainings[0], plan(config).sweeps
    assert list(repeated.moved_in_training(training, config)) == list(repeated.moved_in_point(sweep)) == []


def test_a_dial_that_is_solved_for_alone_is_the_one_that_was_measured(config_of, monkeypatch):
    # What is saved falls again on the way: a dial that is looked for from its ends is not one between two others.
    def measured(model, batches, travel):
        return 0.5 * travel - 0.15 * (0.45 < travel < 0.7)

    monkeypatch.setattr(dial_solving, "_measure", measured)
    config = config_of("calm", evaluation={"grid": (0.0, 0.1, 0.2, 0.3, 0.4)})
    run(config, jobs=1)
    (sweep,) = plan(config).sweeps
    savings = sweep.record.savings()
    assert len(savings) > 3
    for saving in savings:
        again = calibrated.Calibrated(sweep)
        again.calibrate([saving], SilentReporter())
        assert again.model.method.checked_dial(saving) == sweep.record.point(saving).dial
    assert list(repeated.moved_in_point(sweep)) == []


def test_more_documents_are_asked_where_only_the_best_choice_is_on_record(done, monkeypatch):
    config, _ = done
    (sweep,) = plan(config).sweeps
    asked, evaluate = [], repeated.evaluate
    monkeypatch.setattr(repeated, "DOCUMENTS", 1)
    monkeypatch.setattr(repeated, "CHOOSING", 2)
    monkeypatch.setattr(
        repeated, "evaluate", lambda *one, **how: asked.append(len(how["documents"])) or evaluate(*one, **how)
    )
    assert list(repeated.moved_in_point(sweep)) == []
    monkeypatch.setattr(repeated, "CHOOSING", 20)
    assert list(repeated.moved_in_point(sweep)) == []
    assert asked == [2, config.evaluation.limit]


AdamW = torch.optim.AdamW


def cut_earlier(example, tokenizer, max_length, **how):
    return encode(example, tokenizer, max_length - 1, **how)


encode, permutation = encoding._encode, order.DataOrder._permutation
IN_TRAINING = {
    "learning rate": (schedule, "FALLS_FROM", 0.3),
    "order_sha256": (order.DataOrder, "_permutation", lambda self, epoch: permutation(self, epoch + 1)),
    "tokens|order_sha256": (encoding, "_encode", cut_earlier),
    "parameters added": ("adaptive_bench.runs.work.training.parameters_added", lambda method: 3),
    "price of the target": (target, "_measure", lambda *_: dict.fromkeys(("tokens", "core", "net"), 0.5)),
    "gradient norm": (torch.optim, "AdamW", lambda groups, **how: AdamW(groups, **how | {"weight_decay": 5.0})),
}


def test_every_part_of_a_training_is_compared(config_of, monkeypatch):
    config = config_of("gateskip", train={"max_length": 48, "steps": 6})
    run(config, jobs=1)
    (training,) = plan(config).trainings
    assert list(repeated.moved_in_training(training, config)) == []
    for text, patched in IN_TRAINING.items():
        with monkeypatch.context() as patch:
            patch.setattr(*patched)
            moved = list(repeated.moved_in_training(training, config))
        assert any(re.search(text, one) for one in moved), (text, moved)


def test_betas_show_in_the_steps_that_there_is_time_for(config_of, monkeypatch):
    config = config_of("dense", train={"steps": 8, "learning_rate": 1e-2})
    run(config, jobs=1)
    (training,) = plan(config).trainings
    assert list(repeated.moved_in_training(training, config)) == []
    monkeypatch.setattr(torch.optim, "AdamW", lambda groups, **how: AdamW(groups, **how | {"betas": (0.8, 0.999)}))
    assert any("loss" in one for one in repeated.moved_in_training(training, config))
    monkeypatch.setattr(repeated, "WITHIN_S", 0.0)
    assert len(repeated.repeat_first_steps(training, config, repeated.STEPS, 0.0).steps.lines) == repeated.STEPS[0]


def test_every_part_of_a_point_is_compared(config_of, monkeypatch):
    config = config_of("gateskip", tasks=("nano_math",), evaluation={"limit": 6})
    run(config, jobs=1)
    (sweep,) = plan(config).sweeps
    assert list(repeated.moved_in_point(sweep)) == []
    in_point = {
        "other scores": (repeated, "replay", lambda *given, **how: rescored(*given, **how)),
        "other prompts": (repeated, "replay", lambda *given, **how: reasked(*given, **how)),
        "other settings of what is to be written": (repeated, "replay", lambda *given, **how: reasked(*given, **how)),
        "saved net of held-out text": (calibrated.Calibrated, "held_out_savings", more_saved),
        "the dial ends": (type(sweep.record), "max_saved_tokens", 0.1),
    }
    for text, (place, name, value) in in_point.items():
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            moved = list(repeated.moved_in_point(sweep))
        assert any(text in one for one in moved), (text, moved)


replay, held_out_savings = repeated.replay, calibrated.Calibrated.held_out_savings


def rescored(*given, **how):
    samples, data = replay(*given, **how)
    first = samples[0].from_json(samples[0].to_json() | {"answers": {"strict-match": "another"}})
    return [first, *samples[1:]], data


def reasked(*given, **how):
    samples, data = replay(*given, **how)
    return samples, data | dict.fromkeys(("prompts_sha256", "settings_sha256"), "another")


def more_saved(self, savings):
    found = held_out_savings(self, savings)
    return {name: {axis: share and share + 0.01 for axis, share in one.items()} for name, one in found.items()}


@pytest.fixture
def looked_at(monkeypatch):
    """Works that are looked at, which moves those that are named in `others`."""

    class Looked(list):
        others = ()

        def of(self, work, *_):
            self.append(str(work))
            return ["something"] if any(name in str(work) for name in self.others) else []

    looked = Looked()
    for name in ("moved_in_training", "moved_in_point"):
        monkeypatch.setattr(spot_check, name, looked.of)
    return looked


def test_every_method_and_task_is_looked_at_a_few_at_a_start(config_of, other_code, looked_at, monkeypatch):
    config = config_of(("dense", "gateskip", "random_skip"), tasks=("nano_qa_ll", "nano_text"), seeds=(1, 2))
    run(config, jobs=1)
    monkeypatch.setattr(spot_check, "MOST", 2)
    other_code(config)
    (line,), _ = says(config)
    assert "The next start looks at more" in line and len(looked_at) == 4
    for _ in range(2):
        for file in config.out.glob("runs/*/remembered.json"):
            file.unlink()
        lines, _ = says(config)
    assert lines == []
    seen = " ".join(looked_at)
    assert all(f"evaluate {name} on" in seen for name in ("dense", "gateskip", "random_skip"))
    assert all(f"on {task}" in seen for task in config.tasks)
    assert len(looked_at) == len(set(looked_at)) <= 8


def test_only_what_shares_the_code_that_moved_is_made_anew(config_of, looked_at, other_code, monkeypatch):
    config = config_of(("dense", "gateskip"))
    run(config, jobs=1)
    before = records(config)
    other_code(config)
    own = {"dense": "own", "gateskip": "other"}
    for module in (spot_check, recording):
        monkeypatch.setattr(module, "code_digest", lambda method, out: f"changed.{own[method]}")
    looked_at.others = ("gateskip",)
    (line,), _ = says(config)
    assert "raises the version of the method (VERSION in its file)" in line  # `dense` has the same core, and is alike
    trained = {training.spec.name: training.folder for training in plan(config).trainings}
    after = records(config)
    anew = {
        name: all(after[file] != before[file] for file in after if folder in file.parents)
        for name, folder in trained.items()
    }
    assert anew == {"dense": False, "gateskip": True}


def test_a_training_that_diverges_now_is_not_alike(done, other_code, monkeypatch):
    config, _ = done
    other_code(config)
    monkeypatch.setattr("adaptive_bench.training.loop.learning_rate_factor", lambda *_: 1e30)
    reporter = Said()
    run(config, reporter, jobs=1)
    assert "needs a finite" in reporter.lines[0] and "made anew" in reporter.lines[0]


def test_a_redo_that_fails_leaves_no_table_of_other_code(done, other_code, looked_at, monkeypatch):
    config, _ = done
    other_code(config)
    looked_at.others = ("gateskip",)
    monkeypatch.setattr("adaptive_bench.runs.work.training.build_model", None)
    outcome = run(config, Said(), jobs=1)
    assert outcome.failures and not any("poorer" in warning for warning in outcome.warnings)
    assert json.loads((outcome.folder / "run.json").read_text())["state"] == "partial"
