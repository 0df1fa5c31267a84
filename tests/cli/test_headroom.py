"""`adaptive-bench headroom` on a tiny model and a task of a plugin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.headroom import repetitions

PLUGIN = """
from pathlib import Path

from adaptive_bench.method import register
from adaptive_bench.task import Task

HERE = Path(__file__).parent


def task(name, kind, metric, chance):
    known = Task(name, "toy", kind, HERE / name, (metric,), chance, None, data_folders=())
    register("tasks", name)(known)


task("toy_write", "generative", "exact_match,none", 0.0)
task("toy_choose", "loglikelihood", "acc,none", 0.25)
task("toy_read", "loglikelihood", "bits_per_byte,none", 8.0)
task("toy_untested", "loglikelihood", "acc,none", 0.25)
task("toy_odd", "loglikelihood", "perplexity,none", 0.25)
task("toy_empty", "loglikelihood", "acc,none", 0.25)
"""
DOCS = """
import datasets

def load(**_):
    def rows(start, count):
        return datasets.Dataset.from_list([{"q": f"{n} + 1?", "a": str(n + 1)} for n in range(start, start + count)])
    return {"validation": rows(20, 6), "test": rows(0, 6), "empty": rows(0, 0)}
"""
COMMON = """
task: {name}
custom_dataset: !function docs.load
validation_split: validation
test_split: test
doc_to_text: "{{{{q}}}}="
metadata: {{version: 1.0}}
"""
WRITE = """
output_type: generate_until
doc_to_target: "{{a}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 4, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
CHOOSE = """
output_type: multiple_choice
doc_to_choice: ["1", "2", "3", "4"]
doc_to_target: "0"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
READ = """
output_type: loglikelihood_rolling
doc_to_target: "{{q}} {{a}}"
metric_list: [{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}]
"""
ODD = """
output_type: loglikelihood
doc_to_target: "{{a}}"
metric_list: [{metric: perplexity, aggregation: perplexity, higher_is_better: false}]
"""


@pytest.fixture(scope="module")
def plugin_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("plugin")
    parts = {"toy_write": WRITE, "toy_choose": CHOOSE, "toy_read": READ, "toy_odd": ODD}
    parts |= {"toy_untested": CHOOSE, "toy_empty": CHOOSE}
    for name, part in parts.items():
        folder = home / name
        folder.mkdir()
        (folder / "docs.py").write_text(DOCS)
        common = COMMON.format(name=name)
        if name == "toy_untested":
            common = common.replace("validation_split: validation\n", "")
        if name == "toy_empty":
            common = common.replace("test_split: test", "test_split: empty")
        if name == "toy_read":
            common = common.replace('doc_to_text: "{{q}}="', 'doc_to_text: ""')
        (folder / f"{name}.yaml").write_text(common + part)
    (home / "plugin.py").write_text(PLUGIN)
    return home / "plugin.py"


@pytest.fixture
def plugin(plugin_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    return plugin_file


@pytest.fixture
def measure(command, model_folder, plugin):
    """`measure("toy_write", ...)`: the command on the tiny model."""

    def run(tasks, *more):
        return command(
            "headroom", str(model_folder), "--tasks", tasks, "--plugin", str(plugin), "--device", "cpu", *more
        )

    return run


def test_the_record_and_the_table(measure, tmp_path):
    found = measure("toy_write,toy_choose", "--output", str(tmp_path / "record.json"), "--levels", "0.3")
    assert found.exit_code == 0, found.stderr
    assert [line for line in found.stdout.splitlines() if len(line) > 80 and "record.json" not in line] == []
    assert "Oracles bound what methods can do on this model. They are no methods." in found.stdout
    record = json.loads((tmp_path / "record.json").read_bytes())
    assert [task["task"] for task in record["tasks"]] == ["toy_write", "toy_choose"]
    for task in record["tasks"]:
        (level,) = task["levels"]
        assert (level["level"], level["reached"]) == (0.3, True)
        saved = [one["saved"] for one in task["sets"]]
        weights = level["static_weights"]
        assert saved[0] == 0.0
        assert sum(weights) == pytest.approx(1.0)
        assert sum(w * s for w, s in zip(weights, saved, strict=True)) >= 0.3 - 1e-9
        assert level["gold"] >= level["static"] - 1e-12
        assert set(level["headroom"]) == {"difference", "low", "high", "p", "holds_0"}
        assert task["documents"] == 6
        assert len(task["sites"]["rows"]) == 4
        assert 0 <= task["exit_oracle"]["online"]["saved"] < 1


def test_the_same_command_measures_nothing_again_and_says_the_same(measure, monkeypatch):
    first = measure("toy_write", "--json")
    assert first.exit_code == 0, first.stderr

    def never(*_, **__):
        raise AssertionError("a piece was measured again")

    monkeypatch.setattr(repetitions, "evaluate", never)
    assert measure("toy_write", "--json").stdout == first.stdout


def test_what_is_measured_anew_says_the_same(measure):
    first = measure("toy_write", "--json", "--out", "one")
    assert json.loads(first.stdout) == json.loads(measure("toy_write", "--json", "--out", "two").stdout)


def test_an_interruption_keeps_what_was_measured(measure, monkeypatch, tmp_path):
    measured, whole = [], repetitions.evaluate

    def interrupted(model, *arguments, **more):
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(str(model.spec))
        return whole(model, *arguments, **more)

    monkeypatch.setattr(repetitions, "evaluate", interrupted)
    stopped = measure("toy_write")
    assert stopped.exit_code == 130
    assert "Finished work is kept" in stopped.stderr
    before = list(measured)
    monkeypatch.setattr(
        repetitions, "evaluate", lambda model, *a, **k: measured.append(str(model.spec)) or whole(model, *a, **k)
    )
    assert measure("toy_write").exit_code == 0
    (folder,) = (tmp_path / "runs" / "headroom").iterdir()
    evaluations = [file for file in folder.glob("*-*.json") if not file.stem.startswith("sets-")]
    assert len(measured) == len(evaluations)  # none twice
    assert measured[: len(before)] == before


def test_a_piece_that_cannot_be_read_is_measured_again(measure, tmp_path):
    first = measure("toy_write", "--json").stdout
    (file,) = (tmp_path / "runs" / "headroom").glob("*/sites.json")
    before = file.read_text()
    file.write_text(before[:-9])
    assert measure("toy_write", "--json").stdout == first
    assert file.read_text() == before


def test_a_folder_that_cannot_be_read_is_named(measure, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "headroom").write_text("a file, not a folder")
    found = measure("toy_write")
    assert found.exit_code == 1
    assert "What was measured before must be readable" in " ".join(found.stderr.split())


def test_whole_texts_cannot_be_asked_again(measure):
    found = measure("toy_read", "--json")
    assert found.exit_code == 0, found.stderr
    (task,) = json.loads(found.stdout)["tasks"]
    assert "whole texts" in task["asked_once"]
    reached = [level for level in task["levels"] if level["reached"]]
    assert reached
    for level in reached:
        assert level["headroom"] is None
        assert level["gold"] <= level["static"] + 1e-12  # lower is better
    mean = sum(task["sets"][0]["scores"][0]) / 6
    assert mean == pytest.approx(task["sets"][0]["test"][0])


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (("toy_write", "--levels", "1.5"), "Usage error", "--levels takes savings between 0 and 1"),
        (("toy_write", "--kv", "defer"), "Usage error", "--kv is one of recompute, copy_below, evict"),
        (("toy_odd",), "Usage error", "a metric that is a mean over documents"),
        (("toy_untested",), "Usage error", "validation documents"),
        (("toy_empty",), "Plugin fault", "The task 'toy_empty' cannot be set up"),
    ],
)
def test_bad_input_is_named(measure, arguments, kind, words):
    found = measure(*arguments)
    assert found.exit_code == (2 if kind.startswith("Usage") else 1)
    assert kind in found.stderr
    assert words in " ".join(found.stderr.split())
