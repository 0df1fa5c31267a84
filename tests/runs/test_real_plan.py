"""The plan of a run of a real model, on a machine people have."""

import os
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
    with (tmp_path / "said").open("w") as said:
        child = subprocess.Popen([*command, "--dry-run"], cwd=tmp_path, stdout=said)
        _, status, used = os.wait4(child.pid, 0)  # of this child alone
    text = (tmp_path / "said").read_text()
    assert status == 0 and "eligible: measured when the run begins" in text and "time    about" in text
    assert "x as fast as fp32)" in text and used.ru_maxrss < 2_000_000  # kB
