"""Which rows a board lets in."""

import pytest

from adaptive_bench.leaderboard.row import Rejected, checked

GOOD = {
    "method": "gateskip[gate=scalar]",
    "task": "nano_math",
    "metric": "exact_match,strict-match",
    "axis": "net",
    "level": 0.1,
    "score": 0.75,
    "low": 0.5,
    "high": 0.9,
    "seeds": 3,
}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"method": "../x"}, "A method spec has the form"),
        ({"method": None}, "method"),
        ({"score": "0.9"}, "score"),
        ({"score": True}, "score"),
        ({"score": float("nan")}, "score"),
        ({"low": float("inf")}, "low"),
        ({"level": None}, "level"),
        ({"axis": "nett"}, "axis"),
        ({"seeds": 2.5}, "seeds"),
        ({"beyond_target": "yes"}, "beyond_target"),
        ({"task": "a\x1b[31mred"}, "task is a line"),
        ({"task": "<script>alert(1)</script>"}, "task is a line of .* without markup"),
        ({"timing": "[x](javascript:alert(1))"}, "timing is a line of .* without markup"),
        ({"recipe": "x" * 2000}, "recipe is a line of at most 1000"),
    ],
)
def test_a_value_of_another_kind_is_refused(wrong, why):
    with pytest.raises(Rejected, match=why) as error:
        checked(GOOD | wrong)
    assert str(error.value).isprintable() and len(str(error.value)) < 250


@pytest.mark.parametrize("row", [None, 3, "row", [], {}])
def test_what_is_no_row_is_refused(row):
    with pytest.raises(Rejected):
        checked(row)


def test_a_good_row_passes_with_its_values_and_without_unknown_keys():
    row = checked(GOOD | {"evil": "<b>", "kept": 0.5})
    assert {key: row[key] for key in GOOD} == GOOD and row["status"] == "ok" and row["phase"] == "all"
    assert "evil" not in row and "kept" not in row, "the board computes it"
