from itertools import pairwise

import pytest

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.config_file import default_presets, load_config, preset_naming
from adaptive_bench.errors import UsageError


@pytest.mark.parametrize("name", registry.names("configs"))
def test_every_preset_is_valid(name):
    assert load_config(name).methods


def test_the_default_is_the_nano_comparison():
    config = load_config()
    assert config.methods == ("dense", "base", "random_skip", "static_depth[trained=true]", "gateskip", "mod")
    assert config.tasks == ("nano_math", "nano_qa")
    assert config.model == "nano"


def test_presets_that_are_taken_unasked_say_for_which_models():
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


def test_a_config_of_an_earlier_version_can_be_read(tmp_path):
    """It has a grid of dial values, several targets, and maybe no closeness."""
    (tmp_path / "old.yaml").write_text(
        "extends: nano\nlevels: null\ntrain: {target: [0.1, 0.2]}\nevaluation: {grid: [0, 0.3], closeness: null}\n"
    )
    old, now = load_config(tmp_path / "old.yaml"), load_config("nano")
    assert (old.train, old.evaluation, old.levels) == (now.train, now.evaluation, None)
    assert load_config("nano", {"train": {"target": [0.2]}}).train.target == 0.2


def test_the_config_survives_json():
    config = load_config("paper_loglikelihood")
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


def test_data_folder_comes_from_the_environment_unless_it_is_given(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.setenv("ADAPTIVE_BENCH_DATA", str(tmp_path / "a"))
    assert load_config("nano").data_dir == tmp_path / "a"
    assert load_config("nano", {"data_dir": tmp_path / "b"}).data_dir == tmp_path / "b"


def test_a_config_extends_one_preset_by_its_name(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: mine.yaml\n")
    with pytest.raises(UsageError, match=r"mine\.yaml.*extends one preset.*nano"):
        load_config(tmp_path / "mine.yaml")


def test_presets_that_extend_each_other_in_a_circle_are_refused(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("extends: mine\n")
    monkeypatch.setitem(registry._registered, ("configs", "mine"), (tmp_path / "mine.yaml", "this test"))
    with pytest.raises(UsageError, match="mine -> mine"):
        load_config("mine")
