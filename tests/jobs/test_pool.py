"""What becomes of work whose process the system ends, of the work beside it, and of what a worker prints."""

import io
import multiprocessing
import subprocess
import sys
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.jobs.job import JobGroup, named_plugins
from adaptive_bench.jobs.pool import _Schedule
from adaptive_bench.jobs.watchdog import NO_LIMITS
from adaptive_bench.jobs.worker import ProgressQueue, RemoteReporter, StdoutForwarder
from adaptive_bench.progress import PlainReporter, SilentReporter


class DyingJob:
    """A job that fails as often as said because its process is gone."""

    methods = tasks = ()
    folder, is_ready = Path("record"), True

    def __init__(self, name, deaths=0):
        self.name, self.deaths, self.done, self.unfinished = name, deaths, 0, (name,)

    def __str__(self):
        return self.name


class Worker:
    """A worker that does its work at once."""

    replaced = 0

    def submit(self, job):
        future = Future()
        job.deaths -= 1
        if job.deaths >= 0:
            future.set_exception(BrokenProcessPool())
        else:
            job.done += 1
            future.set_result([])
        return future

    def replace(self):
        self.replaced += 1


def carried_out(*groups, jobs=2):
    workers = [Worker() for _ in range(jobs)]
    return _Schedule(list(groups), SilentReporter(), workers, NO_LIMITS).run(), workers


def test_work_whose_process_is_killed_is_given_once_more():
    killed, innocent, after = DyingJob("killed", deaths=1), DyingJob("innocent"), DyingJob("after")
    failures, workers = carried_out(JobGroup(killed, (after,)), JobGroup(innocent))
    assert failures == []
    assert (killed.done, innocent.done, after.done) == (1, 1, 1)
    assert sum(worker.replaced for worker in workers) == 1


def test_work_that_is_killed_again_fails_alone():
    killed, innocent, after = DyingJob("killed", deaths=2), DyingJob("innocent"), DyingJob("after")
    failures, _ = carried_out(JobGroup(killed, (after,)), JobGroup(None, (innocent,)))
    assert [failure.work for failure in failures] == ["killed"]
    assert "ended twice" in failures[0].reason
    assert (innocent.done, after.done) == (1, 0)
    assert named_plugins([], ["nano_qa", "perplexity:letters", "arc_easy"]) is None, "no plugin's code is to blame"


def test_a_worker_that_falls_silent_in_the_middle_of_a_word_silences_nobody(lines):
    context = multiprocessing.get_context("spawn")
    with ProgressQueue(lines) as queue:
        one, other = queue.sender(context), queue.sender(context)
        RemoteReporter(one).line("first")
        one._send(b"\0\0\0\7gar")  # a message of seven bytes, of which three arrive
        one.close()
        RemoteReporter(other).line("second")
        other.close()
    assert sorted(lines.lines) == ["first", "second"]


def test_tasks_of_a_worker_that_is_gone_are_closed():
    context = multiprocessing.get_context("spawn")
    stream = io.StringIO()
    with ProgressQueue(PlainReporter(stream)) as queue:
        sender = queue.sender(context)
        RemoteReporter(sender).task("train mod", 5).advance(2)
        sender.close()
    RemoteReporter(sender).line("into the void")  # nobody listens any more
    assert stream.getvalue() == "train mod: 2/5 in 0:00\n"


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
from adaptive_bench import spawn

print("the script")
spawn.check_main()
process = spawn.context(runs_main={runs_main}).Process(target=print, args=("work",), kwargs=dict(flush=True))
process.start()
process.join()
"""


@pytest.mark.parametrize("needed", [False, True])
def test_processes_do_not_run_the_script_again_and_where_they_need_it_a_script_that_starts_them_is_refused(
    tmp_path, needed
):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(runs_main=needed))
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
