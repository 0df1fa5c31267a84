from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench import registry
from adaptive_bench.config import load_config
from adaptive_bench.recipe import EvalRecipe
from adaptive_bench.runs.run_plan import plan
from adaptive_bench.runs.run_table import method_facts
from adaptive_bench.runs.trained import run_name, write_beginning
from adaptive_bench.store.keys import USUAL, canonical, examples_fingerprint, key_of, run_key
from adaptive_bench.task import Example
from adaptive_bench.tasks.nano.task import NANO_QA_LL
from adaptive_bench.validation import QUANTIZED

OTHERWISE = {
    "temperature": 0.7,
    "stop_strings": ["###"],
    "max_new_tokens": 7,
    "system_prompt": "Be brief.",
    "enable_thinking": False,
    "skip_overlong": True,
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values))
def test_the_order_of_keys_means_nothing(content):
    backwards = dict(reversed(list(content.items())))
    assert canonical(content) == canonical(backwards) and key_of(content) == key_of(backwards)


def test_texts_are_told_apart_by_content_and_cut():
    fingerprints = [
        examples_fingerprint([Example("ab", "c")]),
        examples_fingerprint([Example("a", "bc")]),
        examples_fingerprint([Example("a", "b"), Example("c", "")]),
        examples_fingerprint([]),
    ]
    assert len(set(fingerprints)) == 4


@pytest.mark.parametrize(
    ("changes", "trains_again", "measures_again"),
    [
        ({"levels": (0.3,)}, False, False),  # a level is a target, but for 0
        ({"levels": (0.0, 0.2)}, True, True),
        ({"match_on": "net"}, True, True),
        ({"match_phase": "decode"}, False, False),
        ({"project_onto": "gemma-2-2b"}, False, False),
        ({"levels": (0.0, 0.1), "train": {"target": 0.3}}, False, False),
        ({"train": {"target": 0.1}}, True, True),
        ({"device": "auto"}, False, False),
        ({"train": {"checkpoint_every": 3}}, False, False),
        ({"evaluation": {"closeness": 0.02}}, False, False),
        ({"evaluation": {"limit": 2}}, False, True),
        ({"evaluation": {"batch_size": 2}}, False, True),
        ({"evaluation": {"calibration_examples": 6}}, False, True),
        ({"train": {"learning_rate": 0.5}}, True, True),
        ({"train": {"steps": 4}}, True, True),
        ({"train": {"method_learning_rates": {"gateskip": 0.5}}}, True, True),
        ({"train": {"method_learning_rates": {"mod": 0.5}}}, False, False),
        ({"train": {"method_learning_rates": {"gateskip[shape=scalar]": 0.5}}}, False, False),
        ({"evaluation": {"calibration": "pooled"}}, False, True),
        ({"seeds": (2,)}, True, True),
    ],
)
def test_a_key_holds_what_the_result_depends_on_and_nothing_else(config_of, changes, trains_again, measures_again):
    before, after = plan(config_of("gateskip")), plan(config_of("gateskip", **changes))
    assert (before.trainings[0].folder != after.trainings[0].folder) == trains_again
    assert (before.sweeps[0].folder != after.sweeps[0].folder) == measures_again


@pytest.mark.parametrize(("name", "value"), [*OTHERWISE.items(), *(("quantize", how) for how in QUANTIZED)])
def test_what_is_asked_otherwise_has_keys_of_its_own_and_the_default_those_of_earlier_versions(name, value):
    """Where nothing is written, how it would be written is in no key."""
    plain = load_config("smoke").model_dump(mode="json")
    before = plain | {"evaluation": {key: old for key, old in plain["evaluation"].items() if key not in USUAL}}
    assert plain["evaluation"].keys() >= USUAL.keys() == {*OTHERWISE, "quantize"}
    assert run_key(plain) == run_key(before) and not EvalRecipe().in_key().keys() & USUAL.keys()
    assert run_key(plain | {"evaluation": plain["evaluation"] | {name: value}}) != run_key(plain)
    assert EvalRecipe(**{name: value}).in_key()[name] == value
    of_writing = name in ("stop_strings", "max_new_tokens")
    assert (name in EvalRecipe(**{name: value}).in_key(writes=False)) != of_writing


@pytest.mark.parametrize("spec", ["dense", "random_skip", "gateskip[budget_end=0.7]", "calm"])
def test_a_spec_that_aims_at_no_saving_does_not_depend_on_the_target(config_of, spec):
    folders = [plan(config_of(spec, train={"target": target})).trainings[0].folder for target in (0.1, 0.2)]
    assert folders[0] == folders[1]


def test_a_key_knows_the_content_of_local_data_and_not_its_place(config_of, monkeypatch, tmp_path):
    def folders(place: str, **changes):
        """Of the sweep, with the local data of a task in a folder of that name."""
        changed = replace(NANO_QA_LL, **changes), "this test"
        monkeypatch.setitem(registry._registered, ("tasks", "nano_qa_ll"), changed)
        return plan(config_of(data_dir=tmp_path / place)).sweeps[0].folder

    for place, content in (("here", "1"), ("there", "1"), ("other", "2")):
        (tmp_path / place / "mine").mkdir(parents=True)
        (tmp_path / place / "mine" / "test.jsonl").write_text(content)
    assert folders("here", data_folders=("mine",)) == folders("there", data_folders=("mine",))
    assert folders("here", data_folders=("mine",)) != folders("other", data_folders=("mine",))
    assert folders("here", data_folders=()) == folders("other", data_folders=())
    assert folders("here", data_folders=None) != folders("there", data_folders=None)


# A run is called after what it is about, and keeps its name.


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


@pytest.mark.parametrize(
    ("text", "variant"),
    [
        ("gateskip[shape=scalar,sparsity_weight=0.1]", "gateskip[shape=scalar]"),
        ("gateskip[stride=2]", "gateskip[stride=2]"),
        ("mod[capacity_start=0.9]", "mod"),
        ("calm[confidence=state,exit_interval=2]", "calm[confidence=state,exit_interval=2]"),
    ],
)
def test_a_number_tunes_a_method_and_a_choice_or_a_count_of_layers_makes_a_variant(config_of, text, variant):
    (about,) = method_facts(plan(config_of((text,))))["methods"].values()
    assert about["variant"] == variant
