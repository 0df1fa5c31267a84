"""Shared by all tests: nothing here reaches the network, and one test's environment never leaks into another."""

import os

import pytest

# Before any test module imports a library that reads them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


@pytest.fixture(autouse=True)
def _no_inherited_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADAPTIVE_BENCH_DATA", raising=False)
