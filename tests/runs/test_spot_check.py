"""Records of other code: used where part of them comes out alike, made anew where it does not."""

import shutil

import pytest

from adaptive_bench import code_digest
from adaptive_bench.engine import decode, masked, packed
from adaptive_bench.progress import Line, SilentReporter
from adaptive_bench.runs import plan, run, spot_check
from adaptive_bench.runs.work import recording


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
    monkeypatch.setattr(spot_check, "repeat_first_steps", None)
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
    monkeypatch.setattr(spot_check, "repeat_first_steps", None)
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
        (line,), again = says(config)
        assert "unchecked" in line and "adaptive.json" in line and again == rows
        other_code(config)
