"""Sampled answers are measured beside greedy ones: with the same trainings, under keys of their own."""

import pytest

from adaptive_bench.config_file import load_config
from adaptive_bench.errors import UsageError
from adaptive_bench.leaderboard.terminal import render
from adaptive_bench.recipe import EvalRecipe
from adaptive_bench.runs import run
from adaptive_bench.store.keys import run_key
from adaptive_bench.store.records import DialEvaluationRecord

HOT = {"evaluation": {"temperature": 5.0}}


def _outputs(outcome, task):
    found = {}
    for sweep in sorted(outcome.folder.parent.parent.glob(f"records/*/eval/{task}-*")):
        found[sweep.name] = [one.output for one in DialEvaluationRecord(sweep).samples(0.0)]
    return found


def test_a_sampled_run_trains_nothing_anew_and_stands_in_a_table_of_its_own(config_of):
    greedy = run(config_of("random_skip", tasks=("nano_math",)))
    before = _outputs(greedy, "nano_math")
    sampled = run(config_of("random_skip", tasks=("nano_math",), **HOT))
    assert greedy.folder != sampled.folder and not sampled.failures
    home = greedy.folder.parent.parent
    assert len(list((home / "records").iterdir())) == 1, "the training is that of the greedy run"
    (own,) = before
    (more,) = _outputs(sampled, "nano_math").keys() - before.keys()
    assert _outputs(sampled, "nano_math")[own] == before[own]
    assert _outputs(sampled, "nano_math")[more] != before[own]
    assert {"temperature" in row["recipe"] for row in greedy.rows} == {False}
    assert {row["recipe"].endswith("temperature 5") for row in sampled.rows} == {True}
    shown = render([one.folder / "table.json" for one in (greedy, sampled)], wide=True)
    assert "temperature 5" in shown


def test_the_same_command_finds_what_was_drawn(config_of):
    config = config_of("dense", tasks=("nano_math",), **HOT)
    first = run(config)
    written = _outputs(first, "nano_math")
    assert run(config).rows == first.rows and _outputs(first, "nano_math") == written


def test_runs_and_points_of_earlier_versions_keep_their_keys():
    plain = load_config("smoke").model_dump(mode="json")
    assert "temperature" in plain["evaluation"] and "temperature" not in EvalRecipe().in_key()
    before = plain | {"evaluation": {key: value for key, value in plain["evaluation"].items() if key != "temperature"}}
    assert run_key(plain) == run_key(before)
    hot = plain | {"evaluation": plain["evaluation"] | {"temperature": 0.7}}
    assert run_key(hot) != run_key(plain) and EvalRecipe(temperature=0.7).in_key()["temperature"] == 0.7


OTHERWISE = {
    "stop_strings": ["###"],
    "max_new_tokens": 7,
    "system_prompt": "Be brief.",
    "enable_thinking": False,
    "skip_overlong": True,
}


@pytest.mark.parametrize(("name", "value"), OTHERWISE.items())
def test_what_is_asked_otherwise_has_keys_of_its_own_and_the_default_those_it_had(name, value):
    """Where nothing is written, how it would be written is in no key."""
    plain = load_config("smoke").model_dump(mode="json")
    before = plain | {"evaluation": {key: old for key, old in plain["evaluation"].items() if key not in OTHERWISE}}
    assert run_key(plain) == run_key(before) and not EvalRecipe().in_key().keys() & OTHERWISE.keys()
    assert run_key(plain | {"evaluation": plain["evaluation"] | {name: value}}) != run_key(plain)
    assert EvalRecipe(**{name: value}).in_key()[name] == value
    of_writing = name in ("stop_strings", "max_new_tokens")
    assert (name in EvalRecipe(**{name: value}).in_key(writes=False)) != of_writing


def test_thinking_is_of_a_chat_template():
    with pytest.raises(UsageError, match="Add --chat-template"):
        load_config("smoke", {"evaluation": {"enable_thinking": True}})
    assert load_config("smoke", {"evaluation": {"stop_strings": "a, b"}}).evaluation.stop_strings == ("a, b",)


def test_a_temperature_is_above_nothing():
    with pytest.raises(UsageError, match="temperature"):
        load_config("smoke", {"evaluation": {"temperature": 0}})
