"""Recorded answers, asked and scored again by the code that is here now. No model runs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate.utils import set_seed
from lm_eval import evaluator
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from adaptive_bench.evaluation.drawn import ask_only
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED, PYTHON_SEED, asked_of, samples_of
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.store.evaluations import Sample
from adaptive_bench.task import DocumentSplit


def replay(
    task_name: str,
    samples: Sequence[Sample],
    *,
    data_dir: Path | None,
    num_fewshot: int | None,
    split: DocumentSplit,
) -> tuple[list[Sample], Mapping[str, Any]]:
    """What an evaluation would record of the same outputs now, and of what was asked (`Evaluation.data`).

    Of choices only the best one is on record and of continuations only their likelihood: scores that need more of them,
    as those by length do, come out otherwise. Prompts are those without a chat template.

    Args:
        samples: In the order of their documents, of the first ones that were asked or of all.
        data_dir, num_fewshot, split: As for `evaluate`.
    """
    set_seed(FEWSHOT_SEED)
    random.seed(PYTHON_SEED)
    task = find_task(task_name)
    loaded = load_task(task, data_dir, num_fewshot, split)
    loaded.set_fewshot_seed(FEWSHOT_SEED)
    ask_only(loaded, [sample.doc for sample in samples])
    with quiet():
        results = evaluator.evaluate(
            _Recorded(samples),
            {"tasks": {task.name: loaded}, "groups": {}, "group_map": {}},
            bootstrap_iters=0,
        )
    logged = results["samples"][task.name]
    return samples_of(logged, task), asked_of(task, loaded, logged)


class _Recorded(LM):
    """Answers what is on record."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self._outputs = {sample.doc: sample.output for sample in samples}

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return [str(self._outputs[self._document(request)]) for request in requests]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [(self._likelihood(request), False) for request in requests]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return [self._likelihood(request) for request in requests]

    def _likelihood(self, request: Instance) -> float:
        output = self._outputs[self._document(request)]
        if isinstance(output, int):
            return 0.0 if request.idx == output else -1.0
        return float(output)

    @staticmethod
    def _document(request: Instance) -> int:
        assert request.doc_id is not None
        return int(request.doc_id)
