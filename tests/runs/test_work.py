import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from adaptive_bench.progress import SilentReporter
from adaptive_bench.runs import launching
from adaptive_bench.runs.estimate import steps_left
from adaptive_bench.runs.run_plan import plan
from adaptive_bench.runs.training_work import carry_out_training
from adaptive_bench.store.lock import exclusive
from adaptive_bench.training import resume


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


def test_what_a_worker_finished_is_done_although_it_was_killed_before_it_said_so(config_of, monkeypatch):
    config = config_of("dense")

    run_groups = launching.run_groups

    def killed_at_the_end(*arguments):
        failures = run_groups(*arguments)
        for sweep in plan(config).sweeps:
            sweep.record.write("status", {"state": "running", "since": "", "reason": ""})
        return failures

    with monkeypatch.context() as patch:
        patch.setattr(launching, "run_groups", killed_at_the_end)
        assert not launching.carry_out(plan(config), SilentReporter(), workers=1)
    assert [sweep.record.state for sweep in plan(config).sweeps] == ["done"] * len(plan(config).sweeps)


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
