"""An array of six cells on a real Slurm, with all that can happen to it on one day."""

import json
import os

import pytest
import slurm_daemons as daemons

from adaptive_bench.jobs.launchers import slurm
from adaptive_bench.runs import plan, run
from adaptive_bench.training import resume

pytestmark = pytest.mark.slow

EVENTS = ("preempted", "cancelled", "killed", "raises", "quiet", "dull")
STEPS = 60
_LONG_S = 900  # minutes go by where others compute


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    try:
        found = daemons.Slurm(tmp_path_factory.mktemp("slurm"))
    except (daemons.Unavailable, OSError, AssertionError) as error:
        pytest.skip(f"no Slurm can be started here: {error}")
    yield found
    found.down()


@pytest.fixture
def eventful(eventful_config, cluster, monkeypatch):
    """The config of a run of six cells, submitted from here to the cluster."""
    for name in ("PATH", "SLURM_CONF", "LD_LIBRARY_PATH"):
        if name in cluster.environment:
            monkeypatch.setenv(name, cluster.environment[name])
    monkeypatch.setenv("EVENTS_STEP_S", "0.1")
    return eventful_config(EVENTS, step=8, train={"steps": STEPS, "checkpoint_every": 5})


def test_every_cell_is_done_once_or_marked_with_its_reason(eventful, cluster, tmp_path):
    resources = tmp_path / "resources.yaml"
    resources.write_text("partition: low\nmemory: 100M\ntime: '10'\nwarn_s: 60\n")
    outcome = run(eventful, launcher="slurm", resources=resources)
    assert "Submitted 6 cells" in outcome.elsewhere
    ((array, names),) = json.loads((outcome.folder / "slurm" / "jobs.json").read_text()).items()
    trainings = {str(training.spec).partition("=")[2].rstrip("]"): training for training in plan(eventful).trainings}
    index = {event: f"{array}_{names.index(training.folder.name)}" for event, training in trainings.items()}
    wait = cluster.wait_until

    def trains(event: str) -> bool:
        return resume.newest(trainings[event].folder / "resume") is not None

    wait(lambda: trains("preempted") and trains("cancelled"), _LONG_S, "two elements train")
    cluster.kill_controller()
    cluster.start_controller()
    node = cluster.call("squeue", "-h", "-j", index["preempted"], "-o", "%N")
    urgent = cluster.call("sbatch", "--parsable", "-p", "high", "-w", node, "-o", "/dev/null", "--wrap", "sleep 1")
    cluster.call("scancel", index["cancelled"])
    wait(lambda: cluster.states()[index["cancelled"]] == "CANCELLED", _LONG_S, "the second element is cancelled")
    cluster.call("scontrol", "requeue", index["cancelled"])
    wait(lambda: cluster.states()[urgent] == "COMPLETED", _LONG_S, "the urgent job is done")
    assert "nothing was submitted" not in run(eventful, table_only=True).elsewhere
    assert set(slurm._queued()) <= {(array, number) for number in range(6)}
    over = {"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"}
    wait(lambda: set(cluster.states().values()) <= over, _LONG_S, "everything has ended")

    table = json.loads((outcome.folder / "run.json").read_text())
    assert table["state"] == "partial" and len(table["failures"]) == 2
    assert any("Failed before: RuntimeError: the router is on fire" in text for text in table["failures"])
    assert any("event=killed" in text and "has ended before it was done" in text for text in table["failures"])
    states = {event: training.record.state for event, training in trainings.items()}
    assert states == dict.fromkeys(EVENTS, "done") | {"raises": "failed", "killed": "partial"}

    again = run(eventful, launcher="slurm", resources=resources)
    assert "Submitted 2 cells" in again.elsewhere
    wait(lambda: set(cluster.states().values()) <= over, _LONG_S, "everything has ended again")
    logs = {
        event: (training.folder / "train.jsonl").read_bytes()
        for event, training in trainings.items()
        if event != "raises"
    }
    assert len(set(logs.values())) == 1  # what happened to a cell has left no trace in its result
    assert [json.loads(line)["step"] for line in logs["killed"].splitlines()] == list(range(1, STEPS + 1))
    weights = {
        (training.checkpoint / "backbone/model.safetensors").read_bytes()
        for event, training in trainings.items()
        if event != "raises"
    }
    assert len(weights) == 1
    table = json.loads((outcome.folder / "run.json").read_text())
    assert len(table["failures"]) == 1 and "on fire" in table["failures"][0]
    assert not [path for path in eventful.out.rglob(".*") if os.path.lexists(path)]
