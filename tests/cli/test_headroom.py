"""`adaptive-bench headroom` on a tiny model and a task of a plugin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.cli.headroom_table import verdict
from adaptive_bench.errors import UsageError
from adaptive_bench.headroom import asked
from adaptive_bench.headroom.askings import Asking, askings, why_asked_once
from adaptive_bench.spec import parse_specs
from adaptive_bench.store.digest import is_intact

PLUGIN = """
from pathlib import Path

from adaptive_bench.method import register
from adaptive_bench.task import Task

HERE = Path(__file__).parent


def task(name, kind, metric, chance):
    known = Task(name, "toy", kind, HERE / name, (metric,), chance, (0.0, 0.2, 0.4), None, data_folders=())
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
    content = (tmp_path / "record.json").read_bytes()
    assert is_intact(content)
    record = json.loads(content)
    assert [task["task"] for task in record["tasks"]] == ["toy_write", "toy_choose"]
    for task in record["tasks"]:
        (level,) = task["levels"]
        assert (level["level"], level["reached"]) == (0.3, True)
        saved = [one["saved"] for one in task["sets"]]
        weights = level["static_weights"]
        assert saved[0] == 0.0
        assert sum(weights) == pytest.approx(1.0)
        assert sum(w * s for w, s in zip(weights, saved, strict=True)) >= 0.3 - 1e-9
        assert level["in_sample"]["difference"] >= -1e-12
        assert set(level["headroom"]) == {"difference", "low", "high", "p", "holds_0"}
        assert task["documents"] == 6
        assert len(task["sites"]["rows"]) == 4
        assert task["exit_oracle"]["shuffled"]["saved"]["tokens"] == pytest.approx(
            task["exit_oracle"]["replayed"]["saved"]["tokens"]
        )


def test_the_same_command_measures_nothing_again_and_says_the_same(measure, monkeypatch):
    first = measure("toy_write", "--json")
    assert first.exit_code == 0, first.stderr

    def never(*_, **__):
        raise AssertionError("a piece was measured again")

    monkeypatch.setattr(asked, "evaluate", never)
    assert measure("toy_write", "--json").stdout == first.stdout


def test_what_is_measured_anew_says_the_same(measure):
    first = measure("toy_write", "--json", "--out", "one")
    assert json.loads(first.stdout) == json.loads(measure("toy_write", "--json", "--out", "two").stdout)


def test_an_interruption_keeps_what_was_measured(measure, monkeypatch, tmp_path):
    measured, whole = [], asked.evaluate

    def interrupted(model, *arguments, **more):
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(str(model.spec))
        return whole(model, *arguments, **more)

    monkeypatch.setattr(asked, "evaluate", interrupted)
    stopped = measure("toy_write")
    assert stopped.exit_code == 130
    assert "Finished work is kept" in stopped.stderr
    before = list(measured)
    monkeypatch.setattr(
        asked, "evaluate", lambda model, *a, **k: measured.append(str(model.spec)) or whole(model, *a, **k)
    )
    assert measure("toy_write").exit_code == 0
    (folder,) = (tmp_path / "runs" / "headroom").iterdir()
    evaluations = [file for file in folder.glob("*-*.json") if not file.stem.startswith("sets-")]
    assert len(measured) == len(evaluations)  # none twice
    assert measured[: len(before)] == before


def test_a_piece_that_changed_is_measured_again(measure, tmp_path):
    first = measure("toy_write", "--json").stdout
    (file,) = (tmp_path / "runs" / "headroom").glob("*/sites.json")
    file.write_text(file.read_text().replace("0.", "1.", 1))
    assert measure("toy_write", "--json").stdout == first
    assert is_intact(file.read_bytes())


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
        assert level["in_sample"]["difference"] >= -1e-12
    mean = sum(task["sets"][0]["scores"][0]) / 6
    assert mean == pytest.approx(task["sets"][0]["test"][0])


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (("toy_wrong",), "Usage error", "No task is called 'toy_wrong'"),
        ((",",), "Usage error", "--tasks names at least one task"),
        (("toy_write", "--limit", "0"), "Usage", "--limit"),
        (("toy_write", "--levels", "1.5"), "Usage error", "--levels takes savings between 0 and 1"),
        (("toy_write", "--levels", "half"), "Usage error", "--levels takes"),
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


def test_a_model_that_is_none_is_named(command, plugin, tmp_path):
    found = command("headroom", "nanno", "--tasks", "nano_math")
    assert found.exit_code == 1
    assert "Did you mean 'nano'?" in " ".join(found.stderr.split())
    (tmp_path / "empty").mkdir()
    found = command("headroom", str(tmp_path / "empty"), "--tasks", "nano_math")
    assert found.exit_code == 1
    assert "config.json" in found.stderr


@pytest.mark.parametrize("spec", ["dense", "gateskip"])
def test_a_checkpoint_is_measured_where_it_is_dense(command, model_folder, plugin, tmp_path, spec):
    from adaptive_bench.model import AdaptiveModel
    from adaptive_bench.runs.planning.backbones import find_backbone

    source = find_backbone(str(model_folder))
    AdaptiveModel.build(source.load_model(), spec).save_pretrained(
        tmp_path / "saved" / "checkpoint", source.load_tokenizer()
    )
    given = ("--tasks", "toy_choose", "--plugin", str(plugin), "--device", "cpu", "--json")
    found = command("headroom", str(tmp_path / "saved"), *given)
    if spec != "dense":
        assert found.exit_code == 2
        assert "runs all of its layers" in found.stderr
        return
    assert found.exit_code == 0, found.stderr
    plain = command("headroom", str(model_folder), *given)
    assert json.loads(found.stdout)["tasks"] == json.loads(plain.stdout)["tasks"]


def test_a_run_is_that_of_the_output_folder_that_is_named(tmp_path, monkeypatch):
    from adaptive_bench.headroom.subject import saved_folder

    monkeypatch.chdir(tmp_path)
    for home in ("runs", "other"):
        (Path(home) / "runs" / f"in-{home}").mkdir(parents=True)
        (Path(home) / "runs" / f"in-{home}" / "config.yaml").write_text(
            "model: nano\nmethods: [dense]\ntasks: [csqa]\n"
        )
    assert saved_folder("last").name == "in-runs"
    assert {saved_folder(name, Path("other")).name for name in ("last", "in-o", "other/last")} == {"in-other"}
    assert {saved_folder(name).name for name in ("other/last", "other/in-other")} == {"in-other"}
    assert saved_folder("owner/last") is saved_folder("other/elsewhere") is None


def test_an_oracle_is_no_method():
    """T-OR9: nobody can name one, so that no run has it and no table ranks it."""
    from adaptive_bench.method import method_class
    from adaptive_bench.model.prescribed import Prescribed, StaticSet

    for name in registry.names("methods"):
        assert not issubclass(registry.get("methods", name), (Prescribed, StaticSet))
    for name in ("oracle", "exit_oracle_recompute", "all_layers", "without_layers_1"):
        with pytest.raises(UsageError, match="No method is called"):
            method_class(parse_specs(name)[0])


def test_ways_of_asking_differ():
    assert [way.prefix for way in askings(5, 0)] == ["", "\n", " ", "\n\n", "\n "]
    assert len(set(askings(40, 0))) == 40
    assert [way.prefix for way in askings(3, 2)] == [""] * 3
    assert len({way.seed for way in askings(3, 2)}) == 3
    assert askings(1, 0) == [Asking()]
    assert why_asked_once("multiple_choice", 0, list) is None
    assert "white space" in why_asked_once("multiple_choice", 0, str.split)
    assert why_asked_once("multiple_choice", 3, str.split) is None


def _level(level, *differences):
    known = [None if holds is None else {"holds_0": holds} for holds in differences]
    return {"level": level, "reached": True, "headroom": known[0], "headroom_of_exits": known[1]}


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        (
            [_level(0.1, True, True), _level(0.2, True, None)],
            "no attainable oracle lies above the best static sets at any",
        ),
        (
            [_level(0.1, True, True), _level(0.2, False, True)],
            "no attainable oracle lies above the best static sets at 10 % saved",
        ),
        ([_level(0.1, True, False)], "there is something to decide"),
        ([_level(0.1, None, None)], "not known"),
        ([{"level": 0.9, "reached": False}], "not known"),
    ],
)
def test_the_verdict_is_that_of_the_intervals(levels, words):
    task = {"task": "toy", "levels": levels, "asked_once": None, "unit": "share", "chance": 0.25}
    task["exit_oracle"] = {"online": {"headroom": None}}
    assert words in verdict({**task, "dense": {"low": 0.9}})
    assert "no better at toy than guessing" in verdict({**task, "dense": {"low": 0.2}})


def test_exits_alone_do_not_say_that_there_is_nothing_to_decide():
    asked_once = "it scores whole texts"
    task = {"task": "toy", "levels": [_level(0.1, None, True), _level(0.2, None, False)], "asked_once": asked_once}
    task |= {"unit": "bits", "chance": None, "dense": {"low": 0.9}, "exit_oracle": {"online": {"headroom": None}}}
    told = verdict(task)
    assert told.startswith("Whether there is anything to decide on toy at 10 % saved is not known: it scores")
    assert "no attainable oracle" not in told
    assert "there is something to decide" in verdict(task | {"levels": [_level(0.2, None, False)]})


def test_exits_that_lie_above_the_sets_between_two_levels_are_said():
    task = {"task": "toy", "levels": [_level(0.1, True, True), _level(0.2, True, None)], "asked_once": None}
    task |= {"unit": "share", "chance": 0.25, "dense": {"low": 0.9}}
    for holds, also in ((False, "lie above them at what they save themselves, 17.0 %"), (True, "at any saving")):
        told = verdict(task | {"exit_oracle": {"online": {"saved": 0.17, "headroom": {"holds_0": holds}}}})
        assert also in told and ("at any saving" in told) == holds
