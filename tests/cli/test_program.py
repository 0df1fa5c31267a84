"""Commands that are printed can be given as they stand."""

import sys

import pytest

from adaptive_bench.cli.terminal_text import pasteable


@pytest.fixture
def started_by(monkeypatch, tmp_path):
    """`started_by(argv0, on_path=...)`: the command that is printed for `adaptive-bench run`."""

    def make(started, *, on_path=False):
        script = tmp_path / "bin" / "adaptive-bench"
        script.parent.mkdir()
        script.touch(mode=0o755)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PATH", str(script.parent) if on_path else "/nowhere")
        monkeypatch.setattr(sys, "argv", [started.format(here=tmp_path)])
        return pasteable("adaptive-bench run")

    return make


@pytest.mark.parametrize("started", ["adaptive-bench", "/elsewhere/pytest", "ipykernel_launcher.py", ""])
def test_by_its_name_where_nothing_else_is_known(started_by, started):
    assert started_by(started) == "adaptive-bench run"


def test_by_its_name_where_the_shell_finds_it(started_by):
    assert started_by("{here}/bin/adaptive-bench", on_path=True) == "adaptive-bench run"


def test_by_its_path_where_the_shell_does_not(started_by):
    assert started_by("bin/adaptive-bench") == "bin/adaptive-bench run"


def test_as_a_module(started_by):
    assert started_by("/site/adaptive_bench/__main__.py") == f"{sys.executable} -m adaptive_bench run"
