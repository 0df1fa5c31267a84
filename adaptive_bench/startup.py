"""Keeps imports fast and quiet: loads names when they are first used, and silences the loggers of libraries whose
notices no setting turns off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loader(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package (PEP 562) that imports names when they are first used.

    Args:
        homes: The module of each name.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return load


# transformers imports torchao if it is installed, and torchao then reports what it could do on other machines.
_LOGGERS = ("torchao", "torch.utils._pytree")
QUIET = "ADAPTIVE_BENCH_QUIET"  # environment variable set for processes that this one starts


def silence() -> None:
    """Let these loggers pass only errors; call this before the libraries are imported."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
