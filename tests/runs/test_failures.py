"""What fails takes nothing else with it, and nothing that was not done goes unsaid."""

import json

import pytest

from adaptive_bench.errors import UsageError
from adaptive_bench.progress import Meter
from adaptive_bench.runs import run
from adaptive_bench.runs.workers import work
from adaptive_bench.runs.workers.overall import SweepsReporter, SweepTime

TASKS = ("nano_qa_ll", "nano_text", "nano_math", "nano_qa")


class Bars:
    """Remembers lines, and how far each bar came."""

    def __init__(self):
        self.lines, self.bars = [], {}

    def line(self, text):
        self.lines.append(text)

    def task(self, name, total):
        return Bar(self.bars.setdefault(name, []), total)


class Bar(Meter):
    def __init__(self, moves, total):
        self.moves, self.total = moves, total

    def advance(self, units=1, **info):
        self.moves.append(units / self.total if self.total else 0.0)

    def end(self): ...


def failing(monkeypatch, error, *names):
    """Tasks of these names cannot be evaluated."""
    evaluate = work.evaluate

    def refuse(model, tokenizer, task, **settings):
        if task in names:
            raise error
        return evaluate(model, tokenizer, task, **settings)

    monkeypatch.setattr(work, "evaluate", refuse)


@pytest.mark.parametrize("error", [UsageError("a continuation has 0 tokens."), SystemError("boom")])
def test_a_task_that_fails_does_not_stop_the_others(error, config_of, monkeypatch):
    """Two of four fail: both are named, with the log of each; the other two are in the table."""
    failing(monkeypatch, error, *TASKS[1:3])
    bars = Bars()
    config = config_of("dense", tasks=TASKS)
    outcome = run(config, bars, jobs=1)
    assert [failure.work for failure in outcome.failures] == [
        f"evaluate dense on {name}, seed 1" for name in TASKS[1:3]
    ]
    assert all(failure.log is not None and str(failure.log) in str(failure) for failure in outcome.failures)
    assert len({failure.log for failure in outcome.failures}) == 2
    assert outcome.exit_code == 1
    assert {row["task"] for row in outcome.rows if row["score"] is not None} == {TASKS[0], TASKS[3]}
    told = [line for line in bars.lines if line.startswith("Failed: ")]
    assert told == [f"Failed: {failure}" for failure in outcome.failures]
    assert json.loads((outcome.folder / "run.json").read_text())["failures"] == list(map(str, outcome.failures))
    assert sum(bars.bars["run"]) == pytest.approx(1.0)
    again = run(config, Bars(), jobs=1, table_only=True)
    assert {failure.work for failure in again.failures} == {failure.work for failure in outcome.failures}


def test_stopping_stops_all_of_them(config_of, monkeypatch):
    """A request to stop is no failure of one task."""
    failing(monkeypatch, KeyboardInterrupt(), TASKS[1])
    with pytest.raises(Exception, match="Stopped"):
        run(config_of("dense", tasks=TASKS), Bars(), jobs=1)


def test_a_sweep_that_says_nothing_does_not_take_the_next_ones_time():
    """Its share is spent when the one after it begins, which then moves the bar by its own."""
    bars = Bars()
    shares = [SweepTime(name, 10.0, 5.0, 0.0) for name in "abc"]
    overall = bars.task("run", 30.0)
    reporter = SweepsReporter(bars, overall, shares)
    for place, name in ((0, "a"), (1, None), (2, "c")):
        reporter.begin(place)
        if name is not None:
            reporter.task(f"{name}, dense, level 0", 1).advance(1)
    assert [round(30 * move) for move in bars.bars["run"]] == [5, 5, 10, 5]
    reporter.finish()
    assert sum(bars.bars["run"]) == pytest.approx(1.0)
