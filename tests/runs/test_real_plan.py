"""The plan of a run of a real model, on a machine people have."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(os.environ["ADAPTIVE_BENCH_SHARED"]) / "data"
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not beside the repository"),
]


@pytest.mark.parametrize(
    "asked",
    [
        ["--config", "smollm2"],
        ["--methods", "gateskip,mod", "--tasks", "gsm8k,csqa"],
        ["--config", "smollm2", "--quick"],
    ],
)
def test_it_takes_little_memory_and_measures_no_site(smollm2, tmp_path, asked):
    """Two gigabytes, where one pass over all of the text that a forecast looks at took 24."""
    command = [sys.executable, "-m", "adaptive_bench", "run", *asked, "--model", str(smollm2), "--data-dir", str(DATA)]
    found = subprocess.run(
        [*command, "--dry-run"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600
    )
    assert "eligible: measured when the run begins" in found.stdout and "time    about" in found.stdout
    assert "x as fast as fp32)" in found.stdout
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2_000_000  # kB
