"""A run given twice at once, on a full disk or killed: all end in the files of one that was left alone."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from model_folder import write_model_folder
from snapshot import differences, leftovers, snapshot

pytestmark = pytest.mark.slow
RUN = {
    "methods": ["dense", "gateskip"],
    "tasks": ["nano_qa_ll"],
    "levels": [0.0, 0.1],
    "match_on": "net",
    "device": "cpu",
    "train": {"steps": 2, "batch_size": 2, "warmup_steps": 1, "max_length": 400, "checkpoint_every": 1},
    "evaluation": {"batch_size": 4, "limit": 6, "calibration_examples": 2},
}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """`start(out)`: the command of a small run."""
    home = tmp_path_factory.mktemp("home")
    (home / "small.yaml").write_text(yaml.safe_dump({**RUN, "model": str(write_model_folder(home / "model"))}))
    command = [sys.executable, "-m", "adaptive_bench", "run", "--config", str(home / "small.yaml"), "--jobs", "1"]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": home}
    return lambda out: subprocess.Popen([*command, "--out", str(out)], **how)


def left(out):
    """What must be equal wherever the folder is: not what says where that is."""
    own = ("config.yaml", "command.json", "run.json")
    return {name: content for name, content in snapshot(out).items() if not name.endswith(own)}


def ended(process):
    return process.communicate(timeout=300)[0], process.returncode


@pytest.fixture(scope="module")
def whole(start, tmp_path_factory):
    """What a run leaves that is left alone."""
    out = tmp_path_factory.mktemp("whole") / "out"
    said, code = ended(start(out))
    assert code == 0, said
    return left(out)


@pytest.mark.parametrize("apart_s", [0.0, 3.0])
def test_two_at_once_leave_what_one_leaves(start, whole, tmp_path, apart_s):
    """Whatever their folder is called."""
    out = tmp_path / "ünï'\"\\ $(x) ;&*[1]"
    first = start(out)
    time.sleep(apart_s)
    for process in (start(out), first):
        said, code = ended(process)
        assert code == 0, said
    assert differences(whole, left(out)) + leftovers(out) == []


@pytest.mark.parametrize("size_kb", [8, 200, 328])
def test_a_full_disk_is_said_and_the_run_goes_on_once_it_is_not(start, whole, tmp_path, size_kb):
    def mount(*options):
        return subprocess.run(["mount", *options], check=False, capture_output=True).returncode == 0

    if not mount("-t", "tmpfs", "-o", f"size={size_kb}k", "tmpfs", tmp_path):
        pytest.skip("needs the right to mount a file system")
    try:
        said, code = ended(start(tmp_path / "out"))
        assert code == 1 and "Traceback" not in said and "Defect" not in said
        assert "No space left" in said or "of disk space" in said
        assert mount("-o", "remount,size=100m", tmp_path)
        said, code = ended(start(tmp_path / "out"))
        assert code == 0, said
        assert differences(whole, left(tmp_path / "out")) + leftovers(tmp_path / "out") == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)


# A few of the trials of `kill_and_resume`, which runs thirty and more of them by hand.
SCRIPT = Path(__file__).with_name("kill_and_resume.py")


def test_killed_runs_end_as_if_nothing_had_happened(tmp_path):
    command = [sys.executable, str(SCRIPT), "--kills", "4", "--seed", "7", "--home", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": ""})
    trials = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(trials) == 4, done.stderr[-2000:]
    assert [trial["jobs"] for trial in trials] == [1, 2, 1, 2]
    for trial in trials:
        assert (trial["code"], trial["differences"], trial["leftovers"]) == (0, [], []), trial
    assert all(trial["kills"][0]["killed"] for trial in trials), "a run that is killed ends before its end"
