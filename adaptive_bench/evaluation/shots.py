"""Keeps a tested document out of its own worked examples.

lm-eval leaves the asked document out only if `fewshot_split` is the `test_split`. A task that names only the tested
split has no `fewshot_split`, so its examples would come from the tested documents, including the asked one.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from lm_eval.api.task import ConfigurableTask
from lm_eval.api.task import Task as HarnessTask


def tested_split(harness: HarnessTask) -> str | None:
    """The split whose documents are tested."""
    return harness.config.test_split or harness.config.validation_split


def shown_split(harness: HarnessTask) -> str | None:
    """The split from which worked examples are drawn; `None` if the task has its own list of examples."""
    config, shown = harness.config, harness.config.fewshot_config
    if shown is not None and shown.split is not None:
        return str(shown.split)
    if shown is not None and shown.samples is not None:
        return None
    return config.training_split or config.validation_split or config.test_split


def keep_apart(loaded: HarnessTask, shown: str | None) -> None:
    """Make lm-eval leave the asked document out if the examples come from the tested split.

    Args:
        loaded: A copy of the task, whose parts may be shared with others.
        shown: Result of `shown_split` before another split than the test split was selected.
    """
    tested = tested_split(loaded)
    if not isinstance(loaded, ConfigurableTask) or shown is None or shown != tested:
        return
    loaded.fewshot_cfg = replace(loaded.fewshot_cfg, split=tested)
    loaded._config = replace(loaded.config, test_split=tested, fewshot_config=loaded.fewshot_cfg)
    if loaded.fewshot_cfg.process_docs is None:  # if the task's code draws documents, draw them once for both uses
        loaded.sampler = copy(loaded.sampler).replace_df(list(loaded.eval_docs))


def are_of_tested(harness: HarnessTask) -> bool:
    """Whether the worked examples of a loaded task are tested documents."""
    return isinstance(harness, ConfigurableTask) and harness.fewshot_cfg.split == harness.config.test_split is not None
