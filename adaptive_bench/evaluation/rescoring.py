"""Recorded outputs scored again, document by document, by the task that is here. No model runs, and none is imported:
of thousands of points this takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from lm_eval.api.instance import Instance

from adaptive_bench.evaluation.drawn import drawn
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.store.evaluations import Sample
from adaptive_bench.task import DocumentSplit

LONGEST = 20_000  # characters of an output: a filter may take time that grows with their square
_KEPT = 1 << 17  # outputs: most are written at several savings, some by every method
_LARGEST = 1e-6  # of a log-likelihood, which is at most 0 but for rounding
_TYPES = {"generate_until": str, "multiple_choice": int}  # of other kinds of tasks a log-likelihood


class Rescored(NamedTuple):
    """What a document comes to.

    Attributes:
        target: Its right answer as it comes back from JSON.
        answers: By filter what is read out of a written output.
        scores: By lm-eval metric key; those alone that the recorded output tells.
    """

    target: Any
    answers: dict[str, str]
    scores: dict[str, float]


class Rescorer:
    """Scores outputs of one task.

    Args:
        data_dir, num_fewshot, split: As for `evaluate`.

    Raises:
        UsageError, EnvironmentProblem, PluginFault: As `load_task`.
    """

    def __init__(self, task_name: str, *, data_dir: Path | None, num_fewshot: int | None, split: DocumentSplit) -> None:
        self._of = find_task(task_name)
        self._task = load_task(self._of, data_dir, num_fewshot, split)
        self._documents = list(self._task.eval_docs)
        targets = {id(document): self._task.doc_to_target(document) for document in self._documents}
        self._targets = [json.loads(json.dumps(targets[id(document)])) for document in self._documents]
        # A template is compiled for each score that asks for the target, which takes longer than the score.
        self._task.config.doc_to_target = lambda document: targets[id(document)]
        self._score = lru_cache(_KEPT)(self._scored)

    @property
    def num_fewshot(self) -> int:
        """Worked examples before each question."""
        return int(self._task.config.num_fewshot or 0)

    def documents(self, limit: int | None, *, mixed: bool | None = None) -> Sequence[int]:
        """Numbers of those that an evaluation with this limit asks; arguments as for `drawn`."""
        return drawn(self._of, len(self._documents), limit, mixed=mixed)

    def problem(self, sample: Sample) -> str:
        """What the output of a document cannot be, as the end of a sentence; empty for one that can be scored."""
        output, wanted = sample.output, _TYPES.get(self._task.OUTPUT_TYPE, float)
        if type(output) is not wanted:
            return f"it is of the type {wanted.__name__}, got {type(output).__name__}"
        if isinstance(output, int):
            choices = len(self._task.doc_to_choice(self._documents[sample.doc]))
            return "" if 0 <= output < choices else f"it is one of {choices} choices, got {output}"
        if isinstance(output, float) and not output <= _LARGEST:
            return f"a log-likelihood is at most 0, got {output}"
        return ""

    def of(self, sample: Sample) -> Rescored:
        """What the output of a document comes to, which has no `problem`."""
        return self._score(sample.doc, sample.output)

    def _scored(self, number: int, output: str | int | float) -> Rescored:
        document = self._documents[number]
        answers: dict[str, str] = {}
        if isinstance(output, int):
            scores = self._of_choice(document, output)
        elif isinstance(output, float):
            is_score = self._task.OUTPUT_TYPE == "loglikelihood" and not callable(self._task.config.process_results)
            scores = {"perplexity,none": output} if is_score else {}
        else:
            answers, scores = self._of_text(number, document, output)
        return Rescored(self._targets[number], answers, scores)

    def _of_text(self, number: int, document: Any, output: str) -> tuple[dict[str, str], dict[str, float]]:
        answers: dict[str, str] = {}
        scores: dict[str, float] = {}
        if (self._task.config.repeats or 1) > 1:  # of several texts the first alone is on record
            return answers, scores
        asked = Instance("generate_until", document, ("", {}), 0, (self._task.config.task, number, 1), [output])
        self._task._instances = [asked]
        self._task.apply_filters()
        for name, found in asked.filtered_resps.items():
            answers[name] = str(found)
            values = self._task.process_results(document, [found])
            scores |= {f"{metric},{name}": float(value) for metric, value in values.items() if isinstance(value, Real)}
        return answers, scores

    def _of_choice(self, document: Any, output: int) -> dict[str, float]:
        """The accuracy, by lm-eval's rule: other scores of choices need all their likelihoods."""
        if callable(self._task.config.process_results) or self._task.multiple_input:
            return {}
        choices = list(self._task.doc_to_choice(document))
        target = self._task.doc_to_target(document)
        right = target if isinstance(target, list) else [target]
        return {"acc,none": float(output in [choices.index(one) if isinstance(one, str) else one for one in right])}
