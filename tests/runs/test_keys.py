from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench import registry
from adaptive_bench.runs.run_plan import plan
from adaptive_bench.store.keys import canonical, examples_fingerprint, files_fingerprint, key_of
from adaptive_bench.task import Example
from adaptive_bench.tasks.nano.task import NANO_QA_LL

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values))
def test_the_order_of_keys_means_nothing(content):
    backwards = dict(reversed(list(content.items())))
    assert canonical(content) == canonical(backwards) and key_of(content) == key_of(backwards)


def test_texts_are_told_apart_by_content_and_by_where_they_are_cut():
    fingerprints = [
        examples_fingerprint([Example("ab", "c")]),
        examples_fingerprint([Example("a", "bc")]),
        examples_fingerprint([Example("a", "b"), Example("c", "")]),
        examples_fingerprint([]),
    ]
    assert len(set(fingerprints)) == 4


def test_files_are_told_apart_by_name_and_content(tmp_path: Path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("1")
    first = files_fingerprint([tmp_path / "a"])
    assert first != files_fingerprint([tmp_path / "b"])
    (tmp_path / "a").write_text("2")
    assert first != files_fingerprint([tmp_path / "a"])


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


@pytest.mark.parametrize("spec", ["dense", "random_skip", "gateskip[budget_end=0.7]", "calm"])
def test_a_spec_that_aims_at_no_saving_does_not_depend_on_the_target(config_of, spec):
    folders = [plan(config_of(spec, train={"target": target})).trainings[0].folder for target in (0.1, 0.2)]
    assert folders[0] == folders[1]


def test_a_key_knows_the_content_of_local_data_and_not_its_place(config_of, monkeypatch, tmp_path):
    def folders(place: str, **changes):
        """Of the sweep, with the local data of a task in a folder of that name."""
        monkeypatch.setitem(
            registry._registered, ("tasks", "nano_qa_ll"), (replace(NANO_QA_LL, **changes), "this test")
        )
        return plan(config_of(data_dir=tmp_path / place)).sweeps[0].folder

    for place, content in (("here", "1"), ("there", "1"), ("other", "2")):
        (tmp_path / place / "mine").mkdir(parents=True)
        (tmp_path / place / "mine" / "test.jsonl").write_text(content)
    assert folders("here", data_folders=("mine",)) == folders("there", data_folders=("mine",))
    assert folders("here", data_folders=("mine",)) != folders("other", data_folders=("mine",))
    assert folders("here", data_folders=()) == folders("other", data_folders=())
    assert folders("here", data_folders=None) != folders("there", data_folders=None)
