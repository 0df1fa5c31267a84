"""What becomes of work whose process the system ends, of the work beside it, and of what a worker prints."""

import io
import multiprocessing
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adaptive_bench.jobs.job import JobGroup, named_plugins
from adaptive_bench.jobs.pool import _Schedule
from adaptive_bench.jobs.watchdog import NO_LIMITS
from adaptive_bench.jobs.worker import ProgressQueue, RemoteReporter, StdoutForwarder
from adaptive_bench.progress import PlainReporter, SilentReporter
from adaptive_bench.runs import plan, run

KILLER = """
import os, signal
from pathlib import Path
from adaptive_bench.methods.random_skip import RandomSkip
from adaptive_bench.registry import register
MARK = Path({mark!r})

class Killed(RandomSkip):
    def decide(self, view):
        if MARK.name == "always" or not MARK.exists():
            MARK.touch()
            if os.environ.get("ADAPTIVE_BENCH_TEST_WORKER") != "no" and __import__("multiprocessing").parent_process():
                os.kill(os.getpid(), signal.SIGKILL)
        return super().decide(view)

register("methods", "killed")(Killed)
"""


@dataclass(eq=False)
class DyingJob:
    """A job that fails as often as said because its process is gone."""

    name: str
    deaths: int = 0
    done: int = 0
    methods: tuple = ()
    tasks: tuple = ()

    def __str__(self):
        return self.name

    @property
    def unfinished(self):
        return (self.name,)

    folder = Path("record")
    is_ready = True


@dataclass(eq=False)
class Worker:
    """A worker that does its work at once."""

    replaced: int = field(default=0)

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


@pytest.mark.slow
@pytest.mark.parametrize(("mark", "failed"), [("once", 0), ("always", 1)])
def test_a_killed_worker_takes_no_other_work_with_it(config_of, tmp_path, monkeypatch, mark, failed):
    from adaptive_bench import registry

    plugin = tmp_path / "killer.py"
    plugin.write_text(KILLER.format(mark=str(tmp_path / mark)))
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry.load_plugin(plugin)
    config = config_of("dense,gateskip,killed")
    outcome = run(config, jobs=2)
    assert len(outcome.failures) == failed
    assert {row["method"] for row in outcome.rows} >= {"dense", "gateskip"}
    assert all(sweep.finished() for sweep in plan(config).sweeps if sweep.spec.name != "killed")


def test_tasks_that_are_no_plugins_have_no_code_of_one():
    assert named_plugins([], ["nano_qa", "perplexity:letters", "arc_easy"]) is None


def test_lines_are_told_whole_and_clean(lines):
    stream = StdoutForwarder(lines)
    print("one", "two", file=stream)
    print("\x1b[2J\x07thr", end="", file=stream)
    assert lines.lines == ["one two"]
    print("ee", file=stream)
    assert lines.lines == ["one two", "three"]


def test_megabytes_are_cut_and_many_lines_left_out(lines):
    stream = StdoutForwarder(lines)
    print("x" * 4_000_000, file=stream)
    print("\n" * 1000, file=stream)
    for number in range(1000):
        print(number, file=stream)
    assert len(lines.lines) == 51 and all(len(text) < 400 for text in lines.lines)
    assert lines.lines[-1] == "More than 50 lines were printed during the run; the others are left out."
