"""A command killed at operations on files that are drawn, and a machine that is not as it should be; then given again.

All operations are tried by hand: `every_file_operation.py`, and all that befalls a machine: `administrator.py`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("gcc") is None,
        reason="a library that gcc builds is loaded by LD_PRELOAD",
    ),
]


def carried_out(script, *arguments):
    command = [sys.executable, str(HERE / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": ""})


def test_a_command_killed_anywhere_ends_as_if_nothing_had_happened():
    done = carried_out("every_file_operation.py", "run", "--draw", "20")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    tried, well = map(int, re.search(r"(\d+) trials, (\d+) equal and clean", done.stdout).groups())
    assert tried == well == 20


def test_neither_two_at_once_nor_a_full_disk_changes_a_table():
    done = carried_out("administrator.py", "--json", "--only", "two at once, 0.7|full disk of 3.8 KB")
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert told and all(one["wrong"] == [] for one in told), told
    assert done.returncode == 0
