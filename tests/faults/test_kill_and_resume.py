"""A few of the trials of `kill_and_resume`, which runs thirty and more of them by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

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
