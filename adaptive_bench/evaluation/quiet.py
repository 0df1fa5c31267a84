"""Keeps lm-eval, datasets and the hub client from writing over the progress display and from using old documents."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import datasets
import lm_eval.api.task

_LOGGERS = ("lm_eval", "datasets", "huggingface_hub")


@contextmanager
def quiet() -> Iterator[None]:
    """Inside the block, log only errors and draw no foreign progress bars; restore everything afterwards."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    bars = datasets.is_progress_bar_enabled()
    with ExitStack() as stack:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(logging.ERROR)
            stack.callback(logger.setLevel, level)
        if bars:
            datasets.disable_progress_bars()
            stack.callback(datasets.enable_progress_bars)
        # lm-eval draws this bar (building requests) unconditionally.
        bar = lm_eval.api.task.tqdm
        stack.callback(setattr, lm_eval.api.task, "tqdm", bar)
        lm_eval.api.task.tqdm = partial(bar, disable=True)
        yield


@contextmanager
def uncached() -> Iterator[None]:
    """Disable the cache of `datasets`, so that a task's documents are processed by its current code."""
    if not datasets.is_caching_enabled():
        yield
        return
    datasets.disable_caching()
    try:
        yield
    finally:
        datasets.enable_caching()
