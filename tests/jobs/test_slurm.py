"""An array of six cells on a real Slurm, with all that can happen to it on one day."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import slurm_daemons as daemons
import yaml
from small_runs import launch_request

from adaptive_bench.jobs.launchers import slurm
from adaptive_bench.runs import plan, run
from adaptive_bench.training import resume

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


@pytest.mark.slow
def test_every_cell_is_done_once_or_marked_with_its_reason(eventful, cluster, tmp_path):
    resources = tmp_path / "resources.yaml"
    resources.write_text("partition: low\nmemory: 100M\ntime: '10'\nwarn_s: 60\n")
    outcome = run(eventful, launcher="slurm", resources=resources)
    assert "Submitted 6 cells" in outcome.elsewhere
    ((array, names),) = slurm._queued(outcome.folder / "slurm")[0].items()
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
    assert set(slurm._queued(outcome.folder / "slurm")[0]) <= {array}
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


# A command that is killed while it submits to Slurm submits nothing twice, and forgets nothing.
METHODS = "dense,router_tuned_mod,gateskip"  # the second starts from the first
RESOURCES = {"partition": "low", "at_once": 4, "gpus": "a100:1", "setup": ["module load cuda"]}


class Killed(BaseException):
    """What a test can catch of a SIGKILL."""


class Cluster:
    """Answers like `sbatch` and `squeue`; the command is killed at some of its calls.

    Args:
        kill_after: The number of the submission that Slurm still gets, and the command does not live to hear of.
        kill_before: The number of one that Slurm does not get.

    Attributes:
        scripts: What was submitted, in order.
    """

    def __init__(self, kill_after=0, kill_before=0):
        self.kill_after, self.kill_before = kill_after, kill_before
        self.jobs, self.calls, self.scripts = {}, [], []

    def __call__(self, words, **_):
        self.calls.append(words[0])
        if words[0] == "squeue":
            lines = [f"{job} {index} {name}" for job, (name, indices, _) in self.jobs.items() for index in indices]
            return subprocess.CompletedProcess(words, 0, "\n".join(lines), "")
        if self.calls.count("sbatch") == self.kill_before:
            raise Killed
        job = self._take(words)
        if self.calls.count("sbatch") == self.kill_after:
            raise Killed
        return subprocess.CompletedProcess(words, 0, f"{job};cluster\n", "")

    def _take(self, words):
        text = Path(words[-1]).read_text()
        self.scripts.append(text)
        name = re.search(r"--job-name=(\S+)", text)[1]
        array = re.search(r"--array=0-(\d+)", text)
        after = [part for word in words if "afterany" in word for part in word.split(":")[1:]]
        job = str(100 + len(self.jobs))
        self.jobs[job] = name, [str(n) for n in range(int(array[1]) + 1)] if array else ["N/A"], after
        return job

    @property
    def elements(self):
        """How many array elements were submitted, and how many jobs that write a table."""
        numbers = [indices for _, indices, _ in self.jobs.values()]
        return sum(len(one) for one in numbers if one != ["N/A"]), sum(one == ["N/A"] for one in numbers)


@pytest.fixture
def submit(config_of, monkeypatch, tmp_path):
    """`submit(cluster)`: give the command; the scripts are in `out/runs/a-run/slurm`."""
    config = config_of(METHODS)
    (tmp_path / "resources.yaml").write_text(yaml.safe_dump(RESOURCES))
    request = launch_request(config, config.out / "runs" / "a-run", tmp_path / "resources.yaml")

    def give(cluster):
        monkeypatch.setattr(slurm.subprocess, "run", cluster)
        return slurm.launch(request).submitted

    return give


def test_an_array_for_each_generation_asks_for_what_was_asked_for_and_a_table_for_none_of_it(submit):
    cluster = Cluster()
    submit(cluster)
    first, second, table = cluster.scripts
    assert "#SBATCH --array=0-1%4" in first and "#SBATCH --array=0-0%4" in second
    assert "#SBATCH --partition=low" in first and "module load cuda" in first
    assert "#SBATCH --gpus-per-node=a100:1" in first and "gpus" not in table
    for script in (first, second, table):
        subprocess.check_call(["bash", "-nc", script])


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_job_whose_number_was_never_heard_is_found_again(submit, call):
    """Arrays of trainings, of what starts from them, and the job that writes the table."""
    cluster = Cluster(kill_after=call)
    with pytest.raises(Killed):
        submit(cluster)
    submit(cluster)
    assert cluster.elements == (3, 1)
    arrays, known = [job for job, (_, indices, _) in cluster.jobs.items() if indices != ["N/A"]], len(cluster.calls)
    (table,) = cluster.jobs.keys() - set(arrays)
    assert cluster.jobs[table][2] == arrays and cluster.jobs[arrays[1]][2] == arrays[:1]
    assert "3 cells wait or run in Slurm already; nothing was submitted." in submit(cluster)
    assert cluster.calls[known:] == ["squeue"]


@pytest.mark.parametrize("call", [1, 3])
def test_what_slurm_never_got_is_submitted(submit, call):
    cluster = Cluster(kill_before=call)
    with pytest.raises(Killed):
        submit(cluster)
    submit(cluster)
    assert cluster.elements == (3, 1)


def test_a_job_that_has_ended_unseen_is_judged_by_its_records(submit):
    cluster = Cluster(kill_after=1)
    with pytest.raises(Killed):
        submit(cluster)
    cluster.jobs.clear()  # it ran and failed; without accounting Slurm knows nothing of it
    submit(cluster)
    assert cluster.elements == (3, 1)
    cluster.jobs["100"][1].remove("1")  # and one element alone
    assert "Submitted 1 cells" in submit(cluster)
    assert sum(cluster.elements) == 3 + 2
