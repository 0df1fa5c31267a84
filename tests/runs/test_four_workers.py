"""Four workers in one folder, and all that can go wrong in a cell: the others finish, and the table says so."""

import textwrap

import pytest

from adaptive_bench import registry
from adaptive_bench.runs import plan, run

METHODS = """
    import multiprocessing, os, signal, sys
    from pathlib import Path
    import torch
    from adaptive_bench import registry
    from adaptive_bench.methods.dense import Dense

    @registry.register("methods", "eventful")
    class Eventful(Dense):
        '''The dense model; its spec says what goes wrong.'''

        class Config(Dense.Config):
            event: str = "none"

        @classmethod
        def training_spec(cls, config, spec):
            return spec

        def begin_step(self, step, total_steps):
            super().begin_step(step, total_steps)
            event = self.config.event
            if event == "raises":
                raise RuntimeError("the router is on fire")
            if event == "exhausts":
                torch.empty(1 << 50)
            worker = multiprocessing.parent_process() is not None  # not the run, which times a step beforehand
            if event == "prints":
                print("\\x1b[2J\\x07" + "x" * 4_000_000, flush=True)
                if worker:
                    print("\\x1b]0;title\\x07", file=sys.stderr, flush=True)
            marker = Path(os.environ["EVENTS"]) / "killed"
            if event == "killed" and worker and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        def decide(self, view):
            decision = super().decide(view)
            if self.config.event == "nan" and not self.training:
                nothing = torch.zeros_like(view.call.valid[..., None], dtype=torch.float)
                return type(decision)(scale=nothing / 0)
            return decision
"""
EVENTS = ("none", "raises", "nan", "exhausts", "prints", "killed")


@pytest.mark.slow
def test_what_goes_wrong_in_a_cell_stays_in_it(config_of, tmp_path, monkeypatch, capfd, lines):
    plugin = tmp_path / "eventful.py"
    plugin.write_text(textwrap.dedent(METHODS))
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setenv("EVENTS", str(tmp_path))
    registry.load_plugin(plugin)
    config = config_of(tuple(f"eventful[event={event}]" for event in EVENTS))
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
        (cell.checkpoint / "backbone/model.safetensors").read_bytes()
        for cell in plan(config).cells
        if cell.checkpoint.is_dir() and "nan" not in str(cell.spec)
    }
    assert len(weights) == 1  # the killed one went on as if nothing had happened
    board = (outcome.folder / "leaderboard.md").read_text()
    assert all(f"event={event}" in board for event in EVENTS)
    printed = capfd.readouterr()
    for text in (board, *lines.lines, printed.out, printed.err):
        assert not set(text) & {"\x1b", "\x07"} and len(text) < 100_000
