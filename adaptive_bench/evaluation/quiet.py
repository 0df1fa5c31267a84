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
    with ExitStack() as stack:
        for logger in map(logging.getLogger, _LOGGERS):
            # Its own level, not the effective one: restoring that would detach it from the root logger's level.
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        if datasets.is_progress_bar_enabled():
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
    with ExitStack() as stack:
        if datasets.is_caching_enabled():
            datasets.disable_caching()
            stack.callback(datasets.enable_caching)
        yield
