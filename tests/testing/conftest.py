"""Methods that exist for one test only."""

import pytest

from adaptive_bench import registry


@pytest.fixture
def register_method(monkeypatch):
    """`register_method(method class, name)`: until the end of the test."""

    def register(method, name):
        monkeypatch.setitem(registry._registered, ("methods", name), (method, __file__))

    return register
