"""Kinds of tokens, and numbers on masks and scores against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from adaptive_bench.inspection import statistics
from adaptive_bench.inspection.statistics import KINDS, kinds_of

MASKS = arrays.arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 4), st.just(2)))


@pytest.mark.parametrize(
    ("piece", "kind"),
    [
        ("1,000", "digits"),
        ("<=", "operator"),
        (" The", "function word"),
        (" apples", "other word"),
        (" 猫", "other word"),
        (" ?", "punctuation"),
        ("\n", "space"),
    ],
)
def test_the_kind_of_a_token(piece, kind):
    assert kinds_of(["<s>", piece], [1, 9], ends={2})[1] == kind


def test_first_and_end_go_by_place_and_identity():
    assert kinds_of(["A", " cat", "</s>"], [7, 8, 2], ends={2}) == ["first", "other word", "end"]


def test_a_piece_has_the_kind_of_its_word_or_number():
    """`with|in` is one function word, `in|fer` another word, whatever the tokenizer cuts."""
    pieces = ["<s>", " didn", "'", "t", " dog", "'s", " $", "3", ".", "50", ".", " 4", "=", "4"]
    assert kinds_of(pieces, range(len(pieces)), ends=())[1:] == [
        *["function word"] * 3, *["other word"] * 2, "punctuation", *["digits"] * 3, "punctuation",
        "digits", "operator", "digits",
    ]  # fmt: skip
    kinds = kinds_of(["<s>", " with", "in", " in", "fer", " be", "cause"], range(7), ends=())
    assert kinds[1:] == ["function word"] * 2 + ["other word"] * 2 + ["function word"] * 2


@given(st.lists(st.text(max_size=6), min_size=1, max_size=20))
def test_every_text_has_kinds(pieces):
    kinds = kinds_of(pieces, range(len(pieces)), ends=())
    assert len(kinds) == len(pieces) and set(kinds) <= set(KINDS)


@given(MASKS, st.data())
def test_rates_of_groups_add_up_to_the_whole(keep, data):
    groups = data.draw(st.lists(st.sampled_from("abc"), min_size=len(keep), max_size=len(keep)))
    found = statistics.skipped_by(keep, groups)
    assert sum(count for count, *_ in found.values()) == len(keep)
    whole = sum(count * (attention + mlp) / 2 for count, attention, mlp in found.values()) / len(keep)
    assert whole == pytest.approx(1 - keep.mean())
    layers = statistics.skipped_by_layer(keep)
    assert np.mean(layers) == pytest.approx(1 - keep.mean())


def test_vocabulary_items_have_the_means_of_their_occurrences():
    values = np.array([0.2, 0.4, 0.9, np.nan])
    found = statistics.by_vocabulary(values, [5, 5, 6, 7], ["a", "a", "b", "c"])
    assert found == [("b", 1, 0.9), ("a", 2, pytest.approx(0.3))]


def test_a_density_has_its_modes_where_the_values_are():
    values = np.concatenate([np.random.default_rng(0).normal(middle, 0.01, 200) for middle in (0.2, 0.7)])
    low, high, heights = statistics.density(values)
    modes = [low + (high - low) * place / (len(heights) - 1) for place in statistics.peaks(heights)]
    assert modes == pytest.approx([0.2, 0.7], abs=0.05) and max(heights) == 1
    assert statistics.density(np.full(9, 0.5)) is None and statistics.density(np.array([0.1, np.nan])) is None
