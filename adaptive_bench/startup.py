"""What importing costs and says: names that are loaded when they are first asked for, and notices of libraries that no
setting of theirs turns off, silenced by their loggers in every process that loads them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loader(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__` (PEP 562).

    Args:
        homes: Module of each name.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return load


# transformers imports torchao where it is installed, which then tells what it could do on other machines.
_LOGGERS = ("torchao", "torch.utils._pytree")
QUIET = "ADAPTIVE_BENCH_QUIET"  # set for processes that are started anew


def silence() -> None:
    """Let through only errors; called before the libraries are imported."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
