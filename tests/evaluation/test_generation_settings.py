"""Stop strings end a row exactly when they are complete, whatever the tokens are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.generation_settings import GenerationSettings, cut_at, stop_after


@given(st.text(alphabet="ab :\néQuestion", max_size=60), st.sampled_from([["Question:"], ["\n\n"], ["é", "b b"]]))
def test_the_stop_is_seen_with_the_token_that_completes_it(tokenizer, text, until):
    stop = stop_after(until, tokenizer)
    tokens = tokenizer(text, add_special_tokens=False).input_ids
    complete = next(
        (end for end in range(1, len(tokens) + 1) if any(one in tokenizer.decode(tokens[:end]) for one in until)), None
    )
    seen = next((end for end in range(1, len(tokens) + 1) if stop(tokens[:end])), None)
    assert seen == complete


def test_without_stop_strings_there_is_no_function_to_call(tokenizer):
    assert stop_after((), tokenizer) is None


@pytest.mark.parametrize(("text", "kept"), [("one two", "one "), ("three", "three"), ("two", ""), ("b two a", "b ")])
def test_text_is_cut_before_the_first_stop_string(text, kept):
    assert cut_at(("zwei", "two", " a"), text) == kept


def test_settings_default_to_greedy_and_to_the_length_of_lm_eval():
    assert GenerationSettings.read({"until": "stop"}) == GenerationSettings(until=("stop",), max_new_tokens=256)


@pytest.mark.parametrize(
    "wrong",
    [
        {"until": 5},
        {"max_gen_toks": "many"},
        {"temperature": "hot"},
        {"top_p": 2},
    ],
)
def test_settings_of_another_kind_are_refused(wrong):
    with pytest.raises(UsageError, match=r"generation_kwargs have texts as until, .*got .* Correct its YAML file"):
        GenerationSettings.read({"until": "stop", "do_sample": True, **wrong})
