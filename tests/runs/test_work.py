import threading

from filelock import FileLock

from adaptive_bench.runs.plan import plan
from adaptive_bench.runs.work import train_cell


def test_two_processes_never_train_the_same_cell_at_once(config_of, lines):
    config = config_of("dense")
    (cell,) = plan(config).cells
    cell.folder.mkdir(parents=True)
    with FileLock(cell.folder / ".lock"):
        second = threading.Thread(target=train_cell, args=(cell, config, lines))
        second.start()
        second.join(0.5)
        assert second.is_alive() and not cell.finished
        assert "another process" in lines.lines[0]
    second.join(20)
    assert cell.finished and cell.record.state == "done"
