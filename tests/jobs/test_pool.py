"""What becomes of work whose process the system ends, of the work beside it, and of what a worker prints."""

import io
import multiprocessing
import os
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from rich.console import Console

from adaptive_bench import registry
from adaptive_bench.jobs.job import JobGroup, named_plugins
from adaptive_bench.jobs.pool import Schedule, Worker
from adaptive_bench.jobs.watchdog import Limits
from adaptive_bench.jobs.worker import RemoteReporter, StdoutForwarder
from adaptive_bench.live_display import Display


class DyingJob:
    """A job whose process dies in the middle of an event, as often as said."""

    methods = tasks = ()
    folder, is_ready = Path("record"), True
    deaths: ClassVar = {}
    done: ClassVar = []

    def __init__(self, name):
        self.name, self.unfinished = name, (name,)

    def __str__(self):
        return self.name

    def work(self, pipe):
        """Work in place of a process, and return how that ended."""
        reporter = RemoteReporter(pipe)
        reporter.line(f"begin {self.name}")
        task = reporter.task(self.name, 5)
        task.advance(2)
        if self.deaths.get(self.name, 0):
            self.deaths[self.name] -= 1
            pipe._send(b"\0\0\0\7gar")  # a message of seven bytes, of which three arrive
            return -9
        with task:
            task.advance(3)
        self.done.append(self.name)
        reporter.send([])
        return None


class Process:
    """A thread in place of a worker process."""

    def __init__(self, target, args):
        self.pipe, self.exitcode = Connection(os.dup(args[0].fileno())), None
        self.sentinel, self._end = multiprocessing.Pipe()
        self._thread = threading.Thread(target=self._work)
        self.start, self.join = self._thread.start, self._thread.join
        self.kill, self.is_alive = (lambda: None), (lambda: self.exitcode is None)

    def _work(self):
        with suppress(EOFError):
            while self.exitcode is None:
                self.exitcode = self.pipe.recv().work(self.pipe)
        self.pipe.close()
        self._end.close()


@pytest.fixture
def carry_out(monkeypatch):
    """`carry_out(reporter, groups, **deaths)`: do groups of jobs, whose processes die as often as said."""

    def carry_out(reporter, *groups, **deaths):
        monkeypatch.setattr(DyingJob, "deaths", deaths)
        monkeypatch.setattr(DyingJob, "done", [])
        workers = [Worker(SimpleNamespace(Pipe=multiprocessing.Pipe, Process=Process), ()) for _ in range(2)]
        failures = Schedule(list(groups), reporter, workers, Limits()).run()
        for worker in workers:
            worker.close()
        return failures, sorted(DyingJob.done)

    return carry_out


def test_work_whose_process_is_killed_is_given_once_more(carry_out, lines):
    """It silences nobody, and what it showed is closed."""
    stream = io.StringIO()
    killed, innocent, after = map(DyingJob, ("killed", "innocent", "after"))
    groups = JobGroup(killed, (after,)), JobGroup(innocent)
    failures, done = carry_out(Display(Console(file=stream)), *groups, killed=1)
    assert failures == [] and done == ["after", "innocent", "killed"]
    assert sorted(stream.getvalue().splitlines()) == [
        "after: 5/5 in 0:00",
        *("begin after", "begin innocent", "begin killed", "begin killed"),
        "innocent: 5/5 in 0:00",
        *("killed: 2/5 in 0:00", "killed: 5/5 in 0:00"),
        "killed: its process ended by the signal SIGKILL; another one continues it.",
    ]


def test_work_that_is_killed_again_fails_alone(carry_out, lines):
    killed, innocent, after = map(DyingJob, ("killed", "innocent", "after"))
    failures, done = carry_out(lines, JobGroup(killed, (after,)), JobGroup(None, (innocent,)), killed=2)
    assert [failure.work for failure in failures] == ["killed"]
    assert "ended twice by the signal SIGKILL" in failures[0].reason and done == ["innocent"]
    assert named_plugins([], ["nano_qa", "perplexity:letters", "arc_easy"]) is None, "no plugin's code is to blame"


def test_lines_are_told_whole_and_clean_and_long_ones_are_cut(lines):
    stream = StdoutForwarder(lines)
    print("one", "two", file=stream)
    print("\x1b[2J\x07thr", end="", file=stream)
    assert lines.lines == ["one two"]
    print("ee", file=stream)
    assert lines.lines == ["one two", "three"]
    print("x" * 4_000_000, file=stream)
    print("\n" * 1000, file=stream)
    assert len(lines.lines) == 3 and len(lines.lines[-1]) < 400


# What becomes of a script that starts processes without `if __name__ == "__main__":`.
SCRIPT = """
from adaptive_bench import registry
from adaptive_bench.jobs.worker import check_main, spawn_context

print("the script")
if {needed}:
    registry.register("tasks", "of_this_script")(object())
check_main()
process = spawn_context().Process(target=print, args=("work",), kwargs=dict(flush=True))
process.start()
process.join()
"""


@pytest.mark.parametrize("needed", [False, True])
def test_processes_do_not_run_the_script_again_and_where_they_need_it_a_script_that_starts_them_is_refused(
    tmp_path, needed
):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(needed=needed))
    done = subprocess.run([sys.executable, "-u", script], capture_output=True, text=True, check=True)
    assert done.stdout == ("the script\nthe script\n" if needed else "the script\nwork\n")
    assert bool(done.stderr) == needed
    assert not needed or ("script.py" in done.stderr and 'if __name__ == "__main__":' in done.stderr)


def test_the_script_is_needed_for_what_no_plugin_file_registered(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_registered", {})
    plugin = tmp_path / "plugin.py"
    plugin.write_text("from adaptive_bench import register\nregister('tasks', 'of_a_file')(object())\n")
    registry.load_plugin(plugin)
    assert not registry.needs_main()
    registry.register("tasks", "of_this_process")(object())
    assert registry.needs_main()
