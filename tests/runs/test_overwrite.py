"""What a run does with results that are there already."""

import pytest
from small_runs import untimed

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem
from adaptive_bench.progress import SilentReporter
from adaptive_bench.runs import evaluation_work as evaluation
from adaptive_bench.runs import plan, run
from adaptive_bench.runs import training_work as training
from adaptive_bench.store import lock
from adaptive_bench.store.records import Record


def points(config):
    return {file: file.stat().st_ino for file in config.out.rglob("documents.jsonl")}


def test_only_cache_computes_nothing_and_marks_what_is_missing(config_of, monkeypatch):
    config = config_of("dense")
    complete = run(config)
    monkeypatch.setattr(training, "train", None)
    monkeypatch.setattr(evaluation, "evaluate", None)
    assert run(config, overwrite="only-cache").rows == complete.rows
    more = run(config_of("dense,random_skip,gateskip"), overwrite="only-cache")
    assert more.exit_code == 1 and {row["method"] for row in more.rows} == {"dense"}
    assert any("gateskip" in failure.work and "not begun" in failure.reason for failure in more.failures)


def test_always_computes_again_what_the_run_names_and_nothing_else(config_of):
    """Nothing at all where it is refused, and nothing that another process is at."""
    run(config_of("dense", evaluation={"limit": 2}))
    kept = points(config_of())
    config = config_of("dense")
    first, before = run(config), points(config)
    for wrong in ({"device": "cuda:7"}, {"track": ("wandb",)}, {"tasks": ("nano_math", "absent")}):
        with pytest.raises(AdaptiveBenchError):
            run(config.model_copy(update=wrong), overwrite="always")
    assert len(before) == 2 and points(config) == before
    (mine,) = (sweep.folder for sweep in plan(config).sweeps)
    measured = Record(mine).read("points")
    again = run(config, overwrite="always")
    assert untimed(again.rows) == untimed(first.rows) and again.exit_code == 0
    assert measured.keys() == Record(mine).read("points").keys() and measured != Record(mine).read("points")
    assert kept.items() <= (after := points(config)).items()
    held = lock.exclusive(plan(config).trainings[0].folder, "another one", SilentReporter())
    with held, pytest.raises(EnvironmentProblem, match="is running `train dense"):
        run(config, overwrite="always")
    assert plan(config).trainings[0].finished and points(config) == after


def test_never_leaves_what_was_begun(config_of, monkeypatch):
    config = config_of("dense,gateskip")
    with monkeypatch.context() as patched:
        patched.setattr(evaluation, "evaluate", lambda *_, **__: (_ for _ in ()).throw(EnvironmentProblem("not today")))
        assert run(config).exit_code == 1
    outcome = run(config, overwrite="never")
    assert outcome.exit_code == 1 and outcome.rows == []
    assert all("incomplete" in failure.reason for failure in outcome.failures)
    assert {sweep.record.state for sweep in plan(config).sweeps} == {"failed"}
    fresh = run(config_of("random_skip"), overwrite="never")
    assert fresh.exit_code == 0 and fresh.rows
