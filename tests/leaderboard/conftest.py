from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from board_page import browser
from small_runs import run_config

from adaptive_bench.leaderboard.submission import submit
from adaptive_bench.runs import run

__all__ = ["browser", "make_row"]
MakeRow = Callable[..., dict[str, Any]]
ABOUT = {"authors": ["A. Name"], "licence": "CC-BY-4.0", "paper": "https://example.org/paper"}


@pytest.fixture(scope="session")
def small_run(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of seconds."""
    out = tmp_path_factory.mktemp("run") / "out"
    return run(run_config(model_folder, out, ("dense", "random_skip", "gateskip"), seeds=(1, 2), shuffled=True)).folder


@pytest.fixture(scope="session")
def small_entry(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It as an entry, which no test changes."""
    return submit(small_run, tmp_path_factory.mktemp("entries"), about=ABOUT)


@pytest.fixture(scope="session")
def make_row() -> MakeRow:
    def make(**changes: Any) -> dict[str, Any]:
        row: dict[str, Any] = {
            "method": "gateskip",
            "semantics": "bench",
            "task": "nano_math",
            "metric": "exact_match,strict-match",
            "axis": "net",
            "level": 0.1,
            "score": 0.8984,
            "low": 0.84,
            "high": 0.951,
            "seeds": 3,
            "saved_tokens": 0.15,
            "saved_core": 0.125,
            "saved_net": 0.1,
            "status": "ok",
        }
        return row | changes

    return make
