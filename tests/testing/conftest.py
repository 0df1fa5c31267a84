"""Methods that exist for one test only."""

from collections.abc import Callable

import pytest

from adaptive_bench import registry


@pytest.fixture
def register_method(monkeypatch) -> Callable[[type, str], None]:
    """`register_method(method class, name)`: until the end of the test."""

    def register(method: type, name: str) -> None:
        monkeypatch.setitem(registry._registered, ("methods", name), (method, __file__))

    return register
