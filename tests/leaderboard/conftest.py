from collections.abc import Callable
from typing import Any

import pytest
from board_page import browser, opened, site
from forged_entries import entries
from swept_board import board_maker

from adaptive_bench.leaderboard.frame import Board

__all__ = ["board", "browser", "entries", "make_row", "opened", "site"]
MakeRow = Callable[..., dict[str, Any]]


@pytest.fixture
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


@pytest.fixture
def board(make_row: MakeRow) -> Callable[..., Board]:
    """`board(curves, axis, rows)`, see `board_maker`."""
    return board_maker(make_row)
