"""Methods of plugin files in whole runs, worker processes included: also four of them in one folder, and all that can
go wrong in a training. The others finish, and the table says so.
"""

from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.runs import plan, run

pytestmark = pytest.mark.slow

ELSEWHERE = """
import os
from pathlib import Path
from adaptive_bench.methods.dense import Dense
from adaptive_bench.registry import register

@register("methods", "elsewhere")
class Elsewhere(Dense):
    def decide(self, view):
        Path(os.environ["SEEN"]).write_text(str(Path.cwd()))
        return super().decide(view)
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_plugin_works_where_the_run_was_started(config_of, tmp_path, monkeypatch, jobs):
    monkeypatch.setattr(registry, "_registered", {})
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    registry.load_plugin(tmp_path / "elsewhere.py")
    for folder in ("one", "other"):
        home = tmp_path / folder
        home.mkdir()
        monkeypatch.chdir(home)
        monkeypatch.setenv("SEEN", str(home / "seen"))
        outcome = run(config_of("elsewhere,gateskip", out=Path("out")), jobs=jobs)
        assert not outcome.failures and {row["method"] for row in outcome.rows} == {"elsewhere", "gateskip"}
        assert (home / "seen").read_text() == str(home) and (home / "out" / "records").is_dir()


EVENTS = ("none", "raises", "nan", "exhausts", "prints", "killed")


def test_what_goes_wrong_in_a_cell_stays_in_it(eventful_config, capfd, lines):
    config = eventful_config(EVENTS, step=3)
    outcome = run(config, lines, jobs=4)

    assert outcome.exit_code == 1
    told = list(map(str, outcome.failures))
    reasons = {event: next((one for one in told if f"event={event}" in one), "") for event in EVENTS}
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
