"""What fails takes nothing else with it, and nothing that was not done goes unsaid."""

import json

import pytest

from adaptive_bench.errors import UsageError
from adaptive_bench.progress import TaskAdvanced, TaskStarted
from adaptive_bench.runs import evaluation_work as evaluation
from adaptive_bench.runs import run

TASKS = ("nano_qa_ll", "nano_text", "nano_math", "nano_qa")


@pytest.mark.parametrize("error", [UsageError("a continuation has 0 tokens."), SystemError("boom")])
def test_a_task_that_fails_does_not_stop_the_others(error, config_of, monkeypatch, lines):
    """Two of four fail: both are named, with the log of each; the rest is in the table, and the bar ends."""
    evaluate, tell, events = evaluation.evaluate, lines.emit, []

    def refuse(model, tokenizer, task, **settings):
        if task in TASKS[1:3]:
            raise error
        return evaluate(model, tokenizer, task, **settings)

    monkeypatch.setattr(evaluation, "evaluate", refuse)
    monkeypatch.setattr(lines, "emit", lambda event: (tell(event), events.append(event)))
    config = config_of("dense", tasks=TASKS)
    outcome = run(config, lines, jobs=1)
    works = [f"evaluate dense on {name}, seed 1" for name in TASKS[1:3]]
    assert [failure.work for failure in outcome.failures] == works
    assert all(failure.log is not None and str(failure.log) in str(failure) for failure in outcome.failures)
    assert len({failure.log for failure in outcome.failures}) == 2
    assert outcome.exit_code == 1
    assert {row["task"] for row in outcome.rows if row["score"] is not None} == {TASKS[0], TASKS[3]}
    told = [line for line in lines.lines if line.startswith("Failed: ")]
    assert told == [f"Failed: {failure}" for failure in outcome.failures]
    assert json.loads((outcome.folder / "run.json").read_text())["failures"] == list(map(str, outcome.failures))
    bar = {event.task: event.total for event in events if isinstance(event, TaskStarted) and event.label == "run"}
    done = [event.units for event in events if isinstance(event, TaskAdvanced) and event.task in bar]
    assert bar and sum(done) == pytest.approx(sum(bar.values()))
    again = run(config, jobs=1, table_only=True)
    assert {failure.work for failure in again.failures} == {failure.work for failure in outcome.failures}
