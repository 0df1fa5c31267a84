"""Four workers in one folder, and all that can go wrong in a training: the others finish, and the table says so."""

import pytest

from adaptive_bench.runs import plan, run

pytestmark = pytest.mark.slow

EVENTS = ("none", "raises", "nan", "exhausts", "prints", "killed")


def test_what_goes_wrong_in_a_cell_stays_in_it(eventful_config, capfd, lines):
    config = eventful_config(EVENTS, step=3)
    outcome = run(config, lines, jobs=4)

    assert outcome.exit_code == 1
    reasons = {
        event: next((str(one) for one in outcome.failures if f"event={event}" in str(one)), "") for event in EVENTS
    }
    assert {event for event, reason in reasons.items() if reason} == {"raises", "nan", "exhausts"}
    assert "the router is on fire" in reasons["raises"]
    assert "memory" in reasons["exhausts"]
    assert "finite" in reasons["nan"] or "NaN" in reasons["nan"]
    done = {row["method"] for row in outcome.rows if row["score"] is not None}
    assert done == {f"eventful[event={event}]" for event in ("none", "prints", "killed")}
    weights = {
        (training.checkpoint / "backbone/model.safetensors").read_bytes()
        for training in plan(config).trainings
        if training.checkpoint.is_dir() and "nan" not in str(training.spec)
    }
    assert len(weights) == 1  # the killed one went on as if nothing had happened
    board = (outcome.folder / "leaderboard.md").read_text()
    assert all(f"event={event}" in board for event in EVENTS)
    printed = capfd.readouterr()
    for text in (board, *lines.lines, printed.out, printed.err):
        assert not set(text) & {"\x1b", "\x07"} and len(text) < 100_000
