"""The look at what plugins might change does not stumble over libraries that load meanwhile."""

import sys
from types import ModuleType

from adaptive_bench import guard

TABLE = {}


class Grows:
    """Stands in for another thread, or for what loads when somebody asks about it."""

    @property
    def __class__(self):
        TABLE[len(TABLE)] = print
        return Grows


def test_a_table_may_grow_while_it_is_looked_at(monkeypatch):
    module = ModuleType("transformers.growing")
    module.TABLE = TABLE
    TABLE["first"] = Grows()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    guard.State()
    assert len(TABLE) > 1
