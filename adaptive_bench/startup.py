"""Keeps imports fast and quiet: loads names when they are first used, and silences the libraries."""

from __future__ import annotations

import logging
import os
import warnings
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


# The libraries' own switches, set before they are imported, so that only our own progress is shown.
_QUIET = {
    "ADAPTIVE_BENCH_QUIET": "1",  # for `adaptive_bench` itself, in processes that this one starts
    "DATASETS_VERBOSITY": "error",
    "HF_HUB_VERBOSITY": "error",
    "LMEVAL_LOG_LEVEL": "ERROR",
    "PYTHONWARNINGS": "ignore",  # for worker processes
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
# transformers imports torchao if it is installed, and torchao then reports what it could do on other machines.
_LOGGERS = ("torchao", "torch.utils._pytree")


def silence() -> None:
    """Let these loggers pass only errors; call this before the libraries are imported."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)


def quiet() -> None:
    """Silence the libraries, in worker processes too. Variables that the user has set stay."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    warnings.simplefilter("ignore")
    silence()
