"""What counts as an answer in what a model wrote."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.tasks.answers import (
    INVALID,
    flexible_letters,
    last_letter,
    last_number,
    letter_after_mark,
    number_after_mark,
    strict_numbers,
    unparsable,
)


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        (" so\n#### $**500**", "500", "500"),
        (" so\n####\n-1.50", "-1.5", "-1.5"),
        (" so\n#### −7%", "-7", "-7"),
        (" so\n#### 0,500", "0", "500"),  # no separator of thousands: another number, or a decimal comma
        (" so\n#### $20-$5=$15 left, not 20", "15", "20"),
        (" so\n#### (3 x 4) / 2 = 12 / 2 = 6 boxes", "6", "6"),
        (" so\n#### 15 = 20 - 5", "15", "5"),
        (" so\n#### 3 - 5 = ?", "3", "5"),
        (" so\n#### -$.50", "-0.5", "-0.5"),
        (" well...5 and.6 eggs, 1.25", INVALID, "1.25"),
        (" that leaves 10-3", INVALID, "3"),
        (" it fell to -3", INVALID, "-3"),
        (" #### 12\nQuestion 2 #### 13", "12", "13"),
        (" #### five", INVALID, INVALID),
        (" #### -0", "0", "0"),
    ],
)
def test_numbers(text, strict, flexible):
    assert (number_after_mark(text), last_number(text)) == (strict, flexible)


@given(value=st.decimals(-(10**9), 10**9, places=2), around=st.sampled_from(["{}", "${}", "{} eggs", "**{}**", "({})"]))
def test_every_spelling_of_a_number_is_that_number(value, around):
    for spelled in (f"{value:f}", f"{value:,f}", f"{value:f}0"):
        text = "so\n#### " + (spelled if value < 0 else around.format(spelled))
        assert Decimal(last_number(text)) == value
        assert number_after_mark(text) in (INVALID, last_number(text))


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        (" fire burns\n#### (b)", "B", INVALID),
        (" fire burns\n#### **B. fire**", "B", "B"),
        (" B. A fire burns", INVALID, "B"),
        (" I'd say A", INVALID, "A"),
        (" #### Bad", INVALID, INVALID),
        (" A? No: B\n#### A", "A", "A"),
    ],
)
def test_letters(text, strict, flexible):
    assert (letter_after_mark(text, "ABCDE"), last_letter(text, "ABCDE")) == (strict, flexible)


def test_filters_keep_the_shape_of_lm_eval_and_only_letters_of_the_options_count():
    documents = [{"letters": "AB"}, {"letters": "ABCD"}]
    assert flexible_letters([["C or A?"], ["A or C"]], documents) == [["A"], ["C"]]
    assert strict_numbers([["#### 1", "#### x"], []], [{}, {}]) == [["1", INVALID], []]
    assert [unparsable(references=["7"], predictions=[answer]) for answer in (INVALID, "7")] == [1.0, 0.0]
