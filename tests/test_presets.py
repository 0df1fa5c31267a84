"""Every preset of the paper: valid, described in its first lines, and a plan offline with local stand-ins."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.config import RunConfig, default_presets, load_config, preset_naming
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.lookup import expand_tasks, find_task
from adaptive_bench.method import method_class
from adaptive_bench.runs.run_plan import plan
from adaptive_bench.spec import MethodSpec

SHARED = Path(os.environ["ADAPTIVE_BENCH_SHARED"])
PRESETS = [name for name in registry.names("configs") if name.startswith("paper_")]
STAND_INS = {
    "perplexity:HuggingFaceFW/fineweb": "perplexity:c4_sample",
    "gsm8k_nemotron": "gsm8k",
    "csqa_nemotron": "csqa",
}
paper_presets = pytest.mark.parametrize("name", PRESETS)


@paper_presets
def test_names_of_methods_and_tasks_exist_and_the_header_says_how_to_run_it_and_what_to_expect(name):
    header = Path(registry.get("configs", name)).read_text(encoding="utf-8").partition("methods:")[0]
    assert all(wanted in header for wanted in (f"--config {name}", "Needs", "Hardware", "Expected"))
    config = load_config(name)
    for text in config.methods:
        spec = MethodSpec.parse(text)
        method_class(spec)
    for task in expand_tasks([*config.tasks, *(config.train_on or ())]):
        assert find_task(task)
    assert all(find_task(task).training for task in config.train_on)
    assert config.train.batch_size == 1 and config.train.max_length == 4096 and config.seeds[0] == 1
    assert config.levels and config.train.target is not None, "papers train once and judge at all levels"


@paper_presets
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real models and data are not beside the repository")
def test_a_plan_offline(name, tmp_path):
    config = load_config(name)
    overrides = {"model": str(SHARED / "models" / "tinyllamas-stories260K"), "data_dir": str(SHARED / "data")}
    overrides |= {"out": str(tmp_path), "seeds": 1, "train": {"steps": 4}, "evaluation": {"calibration_examples": 8}}
    overrides["train_on"] = [STAND_INS.get(task, task) for task in config.train_on]
    if name == "paper_wmt16":  # its training split is on the hub only
        with pytest.raises(EnvironmentProblem, match=r"'train' of wmt/wmt16 \(ro-en\) cannot be read"):
            plan(load_config(name, overrides))
        return
    found = plan(load_config(name, overrides))
    assert len(found.sweeps) == len(config.methods) * len(expand_tasks(config.tasks))


@pytest.mark.parametrize("name", [name for name in registry.names("configs") if name.startswith("nano_paper")])
def test_the_papers_tables_on_the_nano_model_are_plans(name, tmp_path):
    header = Path(registry.get("configs", name)).read_text(encoding="utf-8").partition("extends:")[0]
    assert f"--config {name}" in header and "leaderboard paper" in header
    config = load_config(name, {"out": tmp_path, "train": {"steps": 4}, "evaluation": {"calibration_examples": 8}})
    assert config.model == "nano" and config.match_on == "tokens" and config.train.target is not None
    assert len(plan(config).sweeps) == len(config.methods) * len(config.tasks)


@pytest.mark.parametrize(("name", "levels"), [("nano", [1 / 6]), ("nano_all", [0.166667, 0.333333])])
def test_on_nano_a_level_is_a_number_of_its_six_layers_and_is_trained_for(name, levels, tmp_path):
    methods = ["static_depth[trained=true]", "gateskip"]
    found = plan(load_config(name, {"out": tmp_path, "methods": methods, "tasks": ["nano_math"], "seeds": 1}))
    assert [one.levels for one in found.sweeps] == [(level,) for level in levels] * 2
    assert [one.training.target for one in found.sweeps] == levels * 2


def test_a_file_that_extends_a_preset_is_for_any_model_unless_it_says_which(tmp_path):
    """A shipped preset that extends another one is for what both say."""
    assert load_config("real_text").for_models.parameters == (1, 100_000_000)
    file = tmp_path / "mine.yaml"
    file.write_text("extends: real_text\ntrain: {steps: 5}\n")
    assert load_config(file).for_models is None
    file.write_text("extends: real_text\nfor_models: {names: [mine]}\n")
    assert load_config(file).for_models.names == ("mine",) and load_config(file).for_models.parameters is None


def test_smollm2_is_a_preset_for_its_size_that_is_only_taken_by_name():
    config = load_config("smollm2")
    assert config.for_models.fit("any", "llama", 134_515_008) and not config.for_models.fit("any", "llama", 10**9)
    assert not config.for_models.by_default and (config.train.precision, config.eligible) == ("auto", "auto")
    assert {find_task(task).kind for task in config.tasks} == {"loglikelihood"}
    assert all(method_class(MethodSpec.parse(text)) for text in config.methods)
    assert load_config("real_text").train.precision == load_config("nano_all").train.precision == "fp32"


# What a config is made of: presets, files, options and the environment.


@pytest.mark.parametrize("name", registry.names("configs"))
def test_every_preset_is_valid_and_survives_json(name):
    config = load_config(name)
    assert config.methods and RunConfig.model_validate_json(config.model_dump_json()) == config


def test_presets_that_are_taken_unasked_say_for_which_models():
    default = load_config()
    assert (default.model, default.tasks) == ("nano", ("nano_math", "nano_qa"))
    assert preset_naming(None) == preset_naming("nano") == "nano"
    assert preset_naming("meta-llama/Llama-3.2-1B") == "pretrained_large"
    assert preset_naming("some/folder") is None
    sizes = sorted(models.parameters for models in default_presets().values() if models.parameters)
    assert all(before[1] == after[0] for before, after in pairwise(sizes))  # no size has two, none in between has none


def test_a_file_gives_what_it_has_and_defaults_fill_the_rest(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("methods: gateskip[b=2,a=1],mod\ntasks: [gsm8k]\nseeds: 3\ntrain: {learning_rate: 1e-4}\n")
    config = load_config(file)
    assert config.methods == ("gateskip[a=1,b=2]", "mod")
    assert config.seeds == (1, 2, 3)
    assert config.train.learning_rate == 1e-4
    assert config.levels is None


def test_levels_are_found_by_the_plan_unless_they_are_given():
    assert load_config("nano", {"levels": "auto"}).levels is load_config("nano").levels is None
    assert load_config("nano", {"levels": "0.25, 0,0.15"}).levels == (0.0, 0.15, 0.25)
    assert load_config("smoke", {"evaluation": {"stop_strings": "a, b"}}).evaluation.stop_strings == ("a, b",)


def test_data_folder_comes_from_the_environment_unless_it_is_given(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.setenv("ADAPTIVE_BENCH_DATA", str(tmp_path / "a"))
    assert load_config("nano").data_dir == tmp_path / "a"
    assert load_config("nano", {"data_dir": tmp_path / "b"}).data_dir == tmp_path / "b"


def test_a_config_extends_one_preset_by_its_name_and_none_that_extends_itself(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("extends: mine.yaml\n")
    with pytest.raises(UsageError, match=r"mine\.yaml.*extends one preset.*nano"):
        load_config(tmp_path / "mine.yaml")
    (tmp_path / "mine.yaml").write_text("extends: mine\n")
    monkeypatch.setitem(registry._registered, ("configs", "mine"), (tmp_path / "mine.yaml", "this test"))
    with pytest.raises(UsageError, match="mine -> mine"):
        load_config("mine")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"match_on": "bytes", "match_phase": "decode"}, "match_on 'bytes'"),
        ({"match_on": "time"}, "match_on"),
        ({"evaluation": {"quantize": "int3"}}, "quantize"),
        ({"evaluation": {"temperature": 0}}, "temperature"),
        ({"evaluation": {"enable_thinking": True}}, "Add --chat-template"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, said):
    with pytest.raises(UsageError, match=said):
        load_config("smoke", changes)
