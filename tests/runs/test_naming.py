"""A run is called after what it is about, and keeps its name."""

import pytest

from adaptive_bench.runs.conditions import run_name, write_beginning


def test_a_name_says_model_methods_and_seeds(config_of):
    name = run_name(config_of("dense,random_skip,gateskip,gateskip[shape=scalar]@paper,mod", seeds=(1, 2)))
    model, _, rest = name.partition("-gateskip-mod-")
    assert config_of("dense").model.endswith(model)
    assert rest.startswith("2more-2seeds-")
    assert run_name(config_of("dense", seeds=(7,))).partition("-")[2].startswith("dense-seed7-")


def test_it_depends_on_what_the_table_depends_on_and_nothing_else(config_of, tmp_path):
    one = run_name(config_of("dense,mod"))
    assert run_name(config_of("dense,mod", out=tmp_path / "other", device="auto")) == one
    assert run_name(config_of("dense,mod", train={"steps": 4})) != one


@pytest.mark.parametrize("model", ["owner/Some-Model.1", "../..", "a b;c"])
def test_it_is_one_part_of_a_path_and_one_word_of_a_command(config_of, model):
    name = run_name(config_of("dense", model=model))
    assert not set(name) & set("/ ;$") and not name.startswith((".", "-"))


def test_a_table_of_what_is_there_leaves_what_the_run_was_begun_with(config_of, tmp_path, monkeypatch):
    config, folder = config_of("dense"), tmp_path / "run"
    write_beginning(folder, config, computes=False)
    before = (folder / "command.json").read_bytes()
    monkeypatch.setattr("adaptive_bench.registry.plugin_files", lambda: [tmp_path / "mine.py"])
    write_beginning(folder, config, computes=False)
    assert (folder / "command.json").read_bytes() == before
    write_beginning(folder, config)
    assert b"mine.py" in (folder / "command.json").read_bytes()
