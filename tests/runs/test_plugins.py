"""Methods of plugin files in whole runs, worker processes included."""

from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.cli.check import write_package
from adaptive_bench.runs import run


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_new_method_runs_beside_the_others(config_of, tmp_path, monkeypatch, jobs):
    monkeypatch.setattr(registry, "_registered", {})
    write_package("mine", tmp_path / "mine")
    registry.load_plugin(tmp_path / "mine" / "mine.py")
    outcome = run(config_of("mine,gateskip"), jobs=jobs)
    assert not outcome.failures
    assert {row["method"] for row in outcome.rows if row["level"] == 0.3 and row["saved"] > 0.1} == {"mine", "gateskip"}


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


@pytest.mark.slow
def test_a_plugin_works_where_the_run_was_started(config_of, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    registry.load_plugin(tmp_path / "elsewhere.py")
    for folder in ("one", "other"):
        home = tmp_path / folder
        home.mkdir()
        monkeypatch.chdir(home)
        monkeypatch.setenv("SEEN", str(home / "seen"))
        outcome = run(config_of("elsewhere", out=Path("out")), jobs=1)
        assert not outcome.failures and outcome.rows
        assert (home / "seen").read_text() == str(home) and (home / "out" / "records").is_dir()
