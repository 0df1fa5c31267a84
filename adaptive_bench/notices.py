"""Notices of libraries that no setting of theirs turns off: by their loggers, in every process that loads them."""

from __future__ import annotations

import logging

# transformers imports torchao where it is installed, which then tells what it could do on other machines.
_LOGGERS = ("torchao", "torch.utils._pytree")
QUIET = "ADAPTIVE_BENCH_QUIET"  # set for processes that are started anew


def silence() -> None:
    """Let through only errors; called before the libraries are imported."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
