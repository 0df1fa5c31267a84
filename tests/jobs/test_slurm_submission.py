"""A command that is killed while it submits to Slurm submits nothing twice, and forgets nothing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import slurm_daemons as daemons
import yaml

from adaptive_bench.jobs.launchers import slurm
from adaptive_bench.runs import plan
from adaptive_bench.runs.launching import launch_request

METHODS = "dense,router_tuned_mod,gateskip"  # the second starts from the first
RESOURCES = {"partition": "low", "at_once": 4, "gpus": "a100:1", "setup": ["module load cuda"]}


class Killed(BaseException):
    """What a test can catch of a SIGKILL."""


class Cluster:
    """Answers like `sbatch` and `squeue`; the command is killed at some of its calls.

    Args:
        kill_after: The number of the submission that Slurm still gets, and the command does not live to hear of.
        kill_before: The number of one that Slurm does not get.
    """

    def __init__(self, kill_after=0, kill_before=0):
        self.kill_after, self.kill_before = kill_after, kill_before
        self.jobs, self.calls, self.late = {}, [], None

    def __call__(self, words, **_):
        self.calls.append(words[0])
        if words[0] == "squeue":
            lines = [f"{job} {index} {name}" for job, (name, indices, _) in self.jobs.items() for index in indices]
            if self.late is not None:  # it arrives while it is asked for
                self._take(self.late)
                self.late = None
            return subprocess.CompletedProcess(words, 0, "\n".join(lines), "")
        if self.calls.count("sbatch") == self.kill_before:
            self.late = words if self.kill_after else None
            raise Killed
        job = self._take(words)
        if self.calls.count("sbatch") == self.kill_after:
            raise Killed
        return subprocess.CompletedProcess(words, 0, f"{job};cluster\n", "")

    def _take(self, words):
        text = Path(words[-1]).read_text()
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
def submit(config_of, lines, monkeypatch, tmp_path):
    """`submit(cluster)`: give the command; the scripts are in `out/runs/a-run/slurm`."""
    config = config_of(METHODS)
    (tmp_path / "resources.yaml").write_text(yaml.safe_dump(RESOURCES))
    request = launch_request(plan(config), config.out / "runs" / "a-run", lines, resources=tmp_path / "resources.yaml")
    monkeypatch.setattr(slurm, "_SETTLE_S", 0.0)

    def give(cluster):
        monkeypatch.setattr(slurm.subprocess, "run", cluster)
        return slurm.launch(request).submitted

    return give


def test_an_array_for_each_generation_asks_for_what_was_asked_for_and_a_table_for_none_of_it(submit, config_of):
    submit(Cluster())
    first, second, table = (
        (config_of(METHODS).out / "runs/a-run/slurm" / f"{name}.sh").read_text()
        for name in ("array-0", "array-1", "table")
    )
    assert "#SBATCH --array=0-1%4" in first and "#SBATCH --array=0-0%4" in second
    assert "#SBATCH --partition=low" in first and "module load cuda" in first
    assert "#SBATCH --gpus-per-node=a100:1" in first and "gpus" not in table
    for script in (first, second, table):
        subprocess.check_call(["bash", "-nc", script])


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("call", [1, 2, 3])
def test_what_slurm_never_got_is_submitted(submit, call):
    cluster = Cluster(kill_before=call)
    with pytest.raises(Killed):
        submit(cluster)
    submit(cluster)
    assert cluster.elements == (3, 1)


@pytest.mark.slow
def test_a_submission_that_is_still_on_its_way_is_waited_for(submit, monkeypatch):
    """`sbatch` goes on when the command that called it is killed."""
    cluster = Cluster(kill_after=-1, kill_before=1)
    with pytest.raises(Killed):
        submit(cluster)
    monkeypatch.setattr(slurm, "_SETTLE_S", 600.0)
    monkeypatch.setattr(slurm.time, "sleep", lambda _: None)
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


@pytest.mark.slow
def test_a_command_killed_after_a_real_sbatch_submits_once(config_of, tmp_path, tmp_path_factory):
    """A real Slurm and a real SIGKILL, between the submission and the note of it."""
    try:
        cluster = daemons.Slurm(tmp_path_factory.mktemp("slurm"))
    except (daemons.Unavailable, OSError, AssertionError) as error:
        pytest.skip(f"no Slurm can be started here: {error}")
    try:
        config = config_of("dense,gateskip")
        folder = config.out / "runs" / "a-run"
        (tmp_path / "bin").mkdir()
        deadly = tmp_path / "bin" / "sbatch"
        deadly.write_text(f'#!/bin/bash\n{cluster.programs["sbatch"]} "$@"\nkill -KILL "$PPID"\n')
        deadly.chmod(0o755)
        (tmp_path / "hold.yaml").write_text(yaml.safe_dump({"options": ["--hold"]}))
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
        script = f"""
from pathlib import Path
from adaptive_bench.config_file import load_config
from adaptive_bench.progress import SilentReporter
from adaptive_bench.jobs.launchers import slurm
from adaptive_bench.runs import plan
from adaptive_bench.runs.launching import launch_request
config = load_config({str(tmp_path / "config.yaml")!r})
request = launch_request(
    plan(config), Path({str(folder)!r}), SilentReporter(), resources=Path({str(tmp_path / "hold.yaml")!r})
)
print(slurm.launch(request).submitted)
"""

        def give(path):
            environment = cluster.environment | {"PATH": path}
            words = [sys.executable, "-c", script]
            return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)

        path = cluster.environment["PATH"]
        killed = give(f"{tmp_path / 'bin'}:{path}")
        assert killed.returncode == -9, killed.stderr
        again = give(path)
        assert "2 cells wait or run in Slurm already" in again.stdout, again.stderr
        states = cluster.states()
        assert len({job.partition("_")[0] for job in states if "_" in job}) == 1
        assert len([job for job in states if "_" in job]) == 2 and len([job for job in states if "_" not in job]) == 1
        assert len(json.loads((folder / "slurm" / "jobs.json").read_text())) == 1
    finally:
        cluster.down()
