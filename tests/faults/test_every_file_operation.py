"""Kinds of operation on files, each once or a share of them: killed, cut off from power, or refused for want of space,
then given again.

All operations are tried by hand: `every_file_operation.py`.
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


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--every", "2"),
        ("study",),
        ("run", "--fault", "power", "--only", "json|yaml|checkpoint", "--every", "3"),
        ("run", "--fault", "full", "--every", "8"),
        ("run", "--fault", "full", "--only", r"write .*tokenizer|rename .*1\)$"),
        ("study", "--fault", "full"),
    ],
    ids=" ".join,
)
def test_a_command_ends_as_if_nothing_had_happened(arguments):
    done = carried_out("every_file_operation.py", *arguments, "--one-of-each")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    tried, well = map(int, re.search(r"(\d+) trials, (\d+) equal and clean", done.stdout).groups())
    assert tried == well > 1


@pytest.mark.parametrize(
    "attacks",
    ["clock set back by a year at 60|clock .* year during", "two at once, 0.7", "link", "full disk of .*[08] KB"],
)
def test_a_machine_that_is_not_as_it_should_be_changes_no_table(attacks):
    done = carried_out("administrator.py", "--json", "--only", attacks)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not told and "disk" in attacks:
        pytest.skip("a file system can be mounted by root alone")
    assert told and all(one["wrong"] == [] for one in told), told
    assert done.returncode == 0
