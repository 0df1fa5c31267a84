import shlex
import signal
import sys
from dataclasses import dataclass

import pytest
from toy_tasks import write_plugin

from adaptive_bench import registry
from adaptive_bench.cli import main
from adaptive_bench.config import load_config
from adaptive_bench.runs import run


@dataclass(frozen=True)
class Result:
    """What a user sees of a command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def said(self):
        """All of it in one line."""
        return " ".join((self.stdout + self.stderr).split())


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory):
    """The folder of a finished smoke run on nano; whoever changes it copies its `out`, two folders above."""
    methods = "dense,gateskip,gateskip@paper,static_depth"
    return run(
        load_config("smoke", {"methods": methods, "out": tmp_path_factory.mktemp("out"), "device": "cpu"})
    ).folder


@pytest.fixture(scope="session")
def _toy_plugin(tmp_path_factory):
    return write_plugin(tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def toy_plugin(_toy_plugin, monkeypatch):
    """A plugin file with tasks `toy_...`, which are gone after the test."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    return _toy_plugin


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Run `adaptive-bench` in this process, inside an empty folder: `command("export", folder)`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("adaptive_bench.cli.options.quiet", lambda: None)  # it changes settings of the whole process

    def run(line, *more):
        monkeypatch.setattr(sys, "argv", ["adaptive-bench", *shlex.split(line), *map(str, more)])
        before = signal.getsignal(signal.SIGINT)
        with pytest.raises(SystemExit) as end:
            main()
        signal.signal(signal.SIGINT, before)  # a process that ends ignores it; this one goes on
        return Result(int(end.value.code or 0), *capsys.readouterr())

    return run
