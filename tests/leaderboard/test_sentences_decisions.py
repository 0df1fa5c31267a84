"""What findings say of the decisions: who loses with those of other tokens, and how much habit alone costs."""

import pytest
from swept_board import section

from adaptive_bench.cli.headroom import verdict
from adaptive_bench.cli.leaderboard import findings
from adaptive_bench.leaderboard.terminal import render

LOST = "Loss with the decisions of other tokens"
WORTH = {"decisions_worth": 0.1, "decisions_low": 0.02, "decisions_high": 0.18, "shuffled_score": 0.8}
WORTH |= {"shuffled_apart": 0.0}


@pytest.mark.parametrize(
    ("changes", "saying"),
    [
        ({}, "Loses with the decisions of other tokens: `mod` +10.0 [+2.0, +18.0]."),
        ({"decisions_low": -0.02}, "No loss shown: `mod` +10.0 [-2.0, +18.0]."),
        ({"decisions_low": 0.0}, "No loss shown: `mod` +10.0 [+0.0, +18.0]."),
        (
            {"decisions_worth": -0.1, "decisions_low": -0.2, "decisions_high": -0.01},
            "Better with the decisions of other tokens: `mod` -10.0 [-20.0, -1.0].",
        ),
        (
            {"shuffled_apart": 0.03},
            "Not comparable (their net savings differ by more than 2 points): `mod` +10.0",
        ),
        (
            {"shuffled_apart": None},
            "Not comparable (the control was not measured at the method's dial values): `mod` +10.0",
        ),
        ({"decisions_low": None, "decisions_high": None}, "not measured for any method"),
    ],
)
def test_who_loses_with_other_tokens_decisions(board, changes, saying):
    text = findings(board({"mod": 90, "layerskip": 90}, rows={"mod": WORTH | changes}))
    said = section(text, LOST)
    assert saying in said and "worth" not in said and "choosing" not in text
    sayings = (
        "oses with the decisions of other tokens:",
        "o loss shown",
        "etter with the",
        "differ by more than 2 points",
        "method's dial values",
        "not measured for any",
    )
    assert sum(one in said for one in sayings) == 1 and "layerskip" not in said


POSITION = "position_skip[trained=true]"
NO_FLOOR = f"No floor: `{POSITION}`, which skips by position alone, was not measured."


def test_what_skipping_by_position_loses_stands_beside_what_methods_lose(board):
    """It is a control: neither one of those that decide per token, nor named as best."""
    rows = {"mod": WORTH, POSITION: WORTH | {"decisions_worth": 0.3, "decisions_low": 0.1, "decisions_high": 0.4}}
    found = board({"random_skip": 20, "mod": 90, POSITION: 95}, rows=rows)
    text = findings(found)
    said = section(text, LOST)
    assert said.endswith(
        "Loses with the decisions of other tokens: `mod` +10.0 [+2.0, +18.0]. The floor, skipping by position "
        f"alone, regardless of the text: `{POSITION}` +30.0 [+10.0, +40.0]."
    )
    assert "1 of 1 methods that decide per token are ahead of it (best: `mod`" in section(
        text, "What random controls show"
    )
    assert verdict(found, "net").partition("on nano_math ")[2].startswith("mod ")
    assert "no floor" not in render(found.lines, wide=True)


@pytest.mark.parametrize(
    "changes",
    [
        None,
        {"method": "position_skip"},
        {"shuffled_apart": None},
        {"shuffled_apart": 0.03},
        {"decisions_low": None, "decisions_high": None},
    ],
)
def test_there_is_no_floor_where_habit_was_not_measured(board, changes):
    """Not in the run, never trained to skip, apart from its control, or without an interval."""
    changes = dict(changes or {})
    name = changes.pop("method", POSITION)
    curves = {"mod": 90, "calm": 80} | ({name: 70} if changes or name != POSITION else {})
    found = board(curves, rows={"mod": WORTH, name: WORTH | changes})
    said = section(findings(found), LOST)
    assert said.endswith(NO_FLOOR) and "The floor" not in said
    assert "no floor: position_skip" in render(found.lines, wide=True)


def test_who_loses_most_comes_first(board):
    rows = {"mod": WORTH, "calm": WORTH | {"decisions_worth": 0.3}, "free": WORTH | {"decisions_worth": 0.2}}
    said = section(findings(board({"mod": 90, "free": 85, "calm": 80}, rows=rows)), LOST)
    assert [name for name in said.split("`") if name in rows] == ["calm", "free", "mod"]


def test_methods_whose_control_was_not_measured_are_named(board):
    said = section(findings(board({"mod": 90, "calm": 80}, rows={"mod": WORTH})), LOST)
    assert "Loses with the decisions of other tokens: `mod` +10.0 [+2.0, +18.0]; not measured: `calm`." in said
