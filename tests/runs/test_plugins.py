"""Methods of plugin files in whole runs, worker processes included."""

import pytest

from adaptive_bench import registry
from adaptive_bench.cli.new_method import write_package
from adaptive_bench.runs import run


@pytest.fixture(autouse=True)
def own_registrations(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_new_method_runs_beside_the_others(config_of, tmp_path, jobs):
    write_package("mine", tmp_path / "mine")
    registry.load_plugin(tmp_path / "mine" / "mine.py")
    outcome = run(config_of("mine,gateskip"), jobs=jobs)
    assert not outcome.failures
    reached = {row["method"] for row in outcome.rows if row["level"] == 0.1 and row["status"] == "ok"}
    assert reached == {"mine", "gateskip"}
