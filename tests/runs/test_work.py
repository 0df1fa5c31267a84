"""Work that several processes or shares of a run are at: nothing is done twice, and tables wait for it."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from finished_run import change

from adaptive_bench import stopping
from adaptive_bench.errors import ToBeContinued
from adaptive_bench.runs import Shard, launching, plan, run, training_work
from adaptive_bench.runs.forecast import steps_left
from adaptive_bench.runs.training_work import carry_out_training
from adaptive_bench.store.lock import exclusive
from adaptive_bench.store.records import Record
from adaptive_bench.store.runs import run_name
from adaptive_bench.training import resume


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(launching, "_LOOK_S", 0.05)


def wait_until(true: Callable[[], bool], limit_s: float = 300.0) -> None:
    end_s = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end_s, "waited too long"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")  # Z: ended, nobody has asked for its exit code yet


def test_two_processes_never_train_the_same_cell_at_once(config_of, lines):
    config = config_of("dense")
    (training,) = plan(config).trainings
    training.folder.mkdir(parents=True)
    with exclusive(training.folder, "it", lines):
        second = threading.Thread(target=carry_out_training, args=(training, config, lines))
        second.start()
        second.join(1.5)
        assert second.is_alive() and not training.finished
        assert "is running it, waiting" in lines.lines[0]
    second.join(20)
    assert training.finished and training.record.state == "done"


def test_what_was_finished_is_done_although_its_process_was_killed_before_its_last_word(config_of, monkeypatch):
    """The same run says so of its workers, and the next one of all."""
    config, run_jobs = config_of("dense"), launching.run_jobs

    def killed_at_the_end(*arguments):
        failures = run_jobs(*arguments)
        for sweep in plan(config).sweeps:
            change(sweep.folder, "status", state="running")
        return failures

    with monkeypatch.context() as patched:
        patched.setattr(launching, "run_jobs", killed_at_the_end)
        run(config)
    whole = plan(config)
    assert [sweep.record.state for sweep in whole.sweeps] == ["done"]
    for piece in (*whole.trainings, *whole.sweeps):
        change(piece.folder, "status", state="running")
    steps = whole.trainings[0].folder / "resume"
    (steps / "step-00000002").mkdir(parents=True)
    run(config)
    assert [piece.record.state for piece in (*whole.trainings, *whole.sweeps)] == ["done", "done"]
    assert not steps.exists()


PARENT = """
import sys
from adaptive_bench.config import RunConfig
from adaptive_bench.runs import run
if __name__ == "__main__":
    run(RunConfig.model_validate_json(sys.argv[1]), jobs=2)
"""


@pytest.mark.slow
def test_workers_end_with_a_killed_parent_and_the_next_run_goes_on(config_of, tmp_path):
    config = config_of("dense,gateskip", train={"steps": 1500, "checkpoint_every": 5})
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, str(script), config.model_dump_json()])
    trainings = plan(config).trainings
    wait_until(lambda: all(resume.newest(training.folder / "resume") for training in trainings))
    workers = [int(pid) for pid in subprocess.check_output(["ps", "--ppid", str(parent.pid), "-o", "pid="]).split()]
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(map(is_alive, workers)))
    assert [training.record.state for training in trainings] == ["partial", "partial"]
    assert all(steps_left(training) < 1500 for training in trainings)


def test_a_table_is_written_when_the_last_cell_is_done(config_of, lines):
    config = config_of("dense,gateskip")
    first, second = (Shard(cells=(training.folder.name,)) for training in plan(config).trainings)
    run(config, shard=first)
    other = threading.Thread(target=lambda: run(config, shard=second), daemon=True)
    other.start()
    outcome = run(config, lines, table_only=True, wait_s=600)
    other.join()
    assert outcome.failures == [] and {row["method"] for row in outcome.rows} == {"dense", "gateskip"}
    assert any("Waiting for 1 pieces of work" in line for line in lines.lines)


def test_a_table_names_what_is_missing_and_what_nobody_is_at_is_given_up(config_of, lines, monkeypatch):
    config = config_of("dense,gateskip")
    run(config, shard=Shard(cells=(plan(config).trainings[0].folder.name,)))
    monkeypatch.setattr(training_work, "train", None)
    for wait_s in (0.2, None):
        outcome = run(config, lines, table_only=True, wait_s=wait_s)
        assert {row["method"] for row in outcome.rows} == {"dense"} and outcome.exit_code == 1
        (left_out,) = map(str, outcome.failures)
        retried = f"`adaptive-bench retry {run_name(outcome.folder)}` does it."
        assert left_out == f"train gateskip, seed 1: Not finished: it was not begun. {retried}"
        assert json.loads((outcome.folder / "run.json").read_text())["state"] == "partial"
    assert sum("No process has worked on what is left" in line for line in lines.lines) == 1


def test_what_somebody_is_at_is_waited_for_however_long(config_of, lines):
    whole = plan(config_of("dense"))
    with exclusive(whole.trainings[0].folder, "it", lines):
        waiting = (whole, whole.config.out / "runs/mine", lines, 0.1)
        waiter = threading.Thread(target=launching.wait_for_others, args=waiting, daemon=True)
        waiter.start()
        waiter.join(1)
        assert waiter.is_alive()
    waiter.join(10)
    assert not waiter.is_alive()


def test_a_table_that_waits_can_be_stopped(config_of):
    threading.Thread(target=lambda: time.sleep(0.5) or stopping.request(), daemon=True).start()
    with pytest.raises(ToBeContinued):
        run(config_of("dense"), table_only=True, wait_s=600)


# A whole run by two processes that torchrun starts: the results of one process, written once.
CHILD = r"""
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.methods.dense import Dense
from adaptive_bench.runs import run

@registry.register("methods", "mine")
class Mine(Dense):
    @classmethod
    def training_spec(cls, config, spec):
        return spec

for line in Path(sys.argv[1]).read_text().splitlines():
    outcome = run(RunConfig.model_validate_json(line))
    sys.stdout.write(f"failures: {list(map(str, outcome.failures))} main: {outcome.is_main_process}\n")  # at one stroke
    sys.stdout.flush()
torch.distributed.destroy_process_group()
"""
TIMES = {"wall_s", "time_s"}
OF_TOKENS = ("tokens", "core", "net")


def of_tokens(point):
    """A point without what depends on who shares a batch: padding, and weights read in each call."""
    about, samples = point
    savings = {axis: about["savings"][axis] for axis in OF_TOKENS}
    return about | {"savings": savings, "report": about["report"]["sites"]}, samples


def points(config):
    """Every measured point and its samples, times aside."""
    found = {}
    for sweep in plan(config).sweeps:
        for saving, point in sweep.record.read("points").items():
            about = {key: value for key, value in point.items() if key not in TIMES}
            found[str(sweep), saving] = about, sweep.record.samples(float(saving))
    return found


def names(folder):
    """Files of the records."""
    return sorted(str(path.relative_to(folder)) for path in (folder / "records").rglob("*"))


@pytest.mark.slow
def test_evaluation_by_two_processes_is_that_of_one(config_of, tmp_path):
    asked = {"limit": 12, "calibration_examples": 6, "batch_size": 4}
    shared = {"tasks": ("nano_qa_ll", "nano_qa"), "evaluation": asked}
    methods = "dense,random_skip,random_skip[compensate=scale],gateskip,gateskip@paper,mod@paper"
    as_is = {"methods": methods, "train": {"steps": 0}, "shuffled": True, **shared}
    picked = "static_depth[rule=bi,trained=true]"  # before training, by the main process
    trained = {"methods": f"gateskip,{picked},mine,dense", "train": {"steps": 4, "batch_size": 4}, **shared}
    script, configs = tmp_path / "child.py", tmp_path / "configs"
    script.write_text(CHILD)
    together = [config_of(**settings, out=tmp_path / "two") for settings in (as_is, trained)]
    configs.write_text("".join(config.model_dump_json() + "\n" for config in together))
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*start, script, configs], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("failures: [] main: False") == 2  # the worker has nothing to say
    assert "train mine, seed 1: Usage error: A method trained in several processes" in done.stdout

    alone = config_of(**as_is, out=tmp_path / "one")
    run(alone, jobs=1)
    found, wanted = points(together[0]), points(alone)
    assert len(wanted) == 26 and found.keys() == wanted.keys()
    for (sweep, name), point in wanted.items():
        if "nano_qa," in sweep and "@paper" not in sweep:  # greedy texts of causal methods: batches come as they come
            assert of_tokens(found[sweep, name]) == of_tokens(point)
        else:
            assert found[sweep, name] == point
    assert names(tmp_path / "one") == [name for name in names(tmp_path / "two") if (tmp_path / "one" / name).exists()]
    states, steps = {}, {}
    for record in (tmp_path / "two" / "records").iterdir():
        about = Record(record).read("config")
        if about["recipe"]["steps"]:
            states[about["method"]] = Record(record).read("status")["state"]
            log = record / "train.jsonl"
            steps[about["method"]] = len(log.read_text().splitlines()) if log.is_file() else 0
    assert states == {"gateskip": "done", picked: "done", "mine": "failed", "dense": "done"}
    assert steps == {"gateskip": 4, picked: 4, "mine": 0, "dense": 4}
