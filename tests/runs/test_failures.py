"""What fails takes nothing else with it, and nothing that was not done goes unsaid."""

import json

import pytest

from adaptive_bench.errors import UsageError
from adaptive_bench.progress import Line, Reporter, TaskAdvanced, TaskStarted
from adaptive_bench.runs import evaluation_work as evaluation
from adaptive_bench.runs import run

TASKS = ("nano_qa_ll", "nano_text", "nano_math", "nano_qa")


class Bars(Reporter):
    """Remembers lines, and how far each bar came."""

    def __init__(self):
        self.lines, self.bars, self.tasks = [], {}, {}

    def emit(self, event):
        match event:
            case Line(text):
                self.lines.append(text)
            case TaskStarted():
                self.tasks[event.task] = event
                self.bars.setdefault(event.label, [])
            case TaskAdvanced():
                started = self.tasks[event.task]
                self.bars[started.label].append(event.units / started.total if started.total else 0.0)


def failing(monkeypatch, error, *names):
    """Tasks of these names cannot be evaluated."""
    evaluate = evaluation.evaluate

    def refuse(model, tokenizer, task, **settings):
        if task in names:
            raise error
        return evaluate(model, tokenizer, task, **settings)

    monkeypatch.setattr(evaluation, "evaluate", refuse)


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
