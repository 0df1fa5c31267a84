import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from adaptive_bench.runs.cost.estimate import steps_left
from adaptive_bench.runs.planning.plan import plan
from adaptive_bench.runs.records.attempts import alone
from adaptive_bench.runs.workers.work import train_cell
from adaptive_bench.training import checkpoint


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
    (cell,) = plan(config).cells
    cell.folder.mkdir(parents=True)
    with alone(cell.folder, "it", lines):
        second = threading.Thread(target=train_cell, args=(cell, config, lines))
        second.start()
        second.join(0.5)
        assert second.is_alive() and not cell.finished
        assert "is at it, waiting" in lines.lines[0]
    second.join(20)
    assert cell.finished and cell.record.state == "done"


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
    cells = plan(config).cells
    wait_until(lambda: all(checkpoint.newest(cell.folder / "resume") for cell in cells))
    workers = [int(pid) for pid in subprocess.check_output(["ps", "--ppid", str(parent.pid), "-o", "pid="]).split()]
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(map(is_alive, workers)))
    assert [cell.record.state for cell in cells] == ["partial", "partial"]
    assert all(steps_left(cell) < 1500 for cell in cells)
