"""Worked examples of the split that is tested: a document is never among its own.

lm-eval leaves a document out only where `fewshot_split` is the `test_split`. A task that names no other split than the
tested one has no `fewshot_split`: its examples come from the tested documents all the same, the asked one included.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from lm_eval.api.task import ConfigurableTask
from lm_eval.api.task import Task as HarnessTask


def tested_split(harness: HarnessTask) -> str | None:
    """The split whose documents are asked."""
    return harness.config.test_split or harness.config.validation_split


def shown_split(harness: HarnessTask) -> str | None:
    """The split that worked examples are drawn from; `None` if they are a list of the task's own."""
    config, shown = harness.config, harness.config.fewshot_config
    if shown is not None and shown.split is not None:
        return str(shown.split)
    if shown is not None and shown.samples is not None:
        return None
    return config.training_split or config.validation_split or config.test_split


def keep_apart(loaded: HarnessTask, shown: str | None) -> None:
    """Have lm-eval leave the asked document out, if the examples are of the tested split.

    Args:
        loaded: A copy of its own; what it holds may be shared.
        shown: Of `shown_split`, before another split than the test's was asked for.
    """
    tested = tested_split(loaded)
    if not isinstance(loaded, ConfigurableTask) or shown is None or shown != tested:
        return
    loaded.fewshot_cfg = replace(loaded.fewshot_cfg, split=tested)
    loaded._config = replace(loaded.config, test_split=tested, fewshot_config=loaded.fewshot_cfg)
    if loaded.fewshot_cfg.process_docs is None:  # documents of code that draws are equal only if drawn once
        loaded.sampler = copy(loaded.sampler).replace_df(list(loaded.eval_docs))


def are_of_tested(harness: HarnessTask) -> bool:
    """Whether the worked examples of a task that was loaded are tested documents."""
    return isinstance(harness, ConfigurableTask) and harness.fewshot_cfg.split == harness.config.test_split is not None
