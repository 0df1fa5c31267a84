"""`adaptive-bench ... | head`: nobody reads to the end, and nothing is said about it."""

import shlex
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = f"{shlex.quote(sys.executable)} -m adaptive_bench"


@pytest.mark.parametrize("arguments", ["list configs", "--help", "list configs --json"])
def test_a_list_ends_quietly(arguments):
    done = subprocess.run(["bash", "-c", f"{PROGRAM} {arguments} | true"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_run_is_done_all_the_same(tmp_path):
    command = f"{PROGRAM} run --config smoke --methods dense --out {shlex.quote(str(tmp_path / 'out'))}"
    script = f"{command} 2>&1 | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(list((tmp_path / "out" / "runs").glob("*/table.json"))) == 1
