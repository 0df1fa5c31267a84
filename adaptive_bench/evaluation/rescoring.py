"""Recorded outputs scored again, document by document, by the task that is here. No model runs, and none is imported:
of thousands of points this takes seconds, where `replay` asks lm-eval for a whole evaluation of each.
"""

from __future__ import annotations

from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from lm_eval.api.instance import Instance

from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.store.evaluations import Sample
from adaptive_bench.task import DocumentSplit

_KEPT = 1 << 17  # outputs: most are written at several savings, some by every method


class Rescored(NamedTuple):
    """What a document comes to.

    Attributes:
        target: Its right answer, as lm-eval logs it.
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
        self._task = load_task(find_task(task_name), data_dir, num_fewshot, split)
        self._documents = list(self._task.eval_docs)
        targets = {id(document): self._task.doc_to_target(document) for document in self._documents}
        # A template is compiled for each score that asks for the target, which takes longer than the score.
        self._task.config.doc_to_target = lambda document: targets[id(document)]
        self.score = lru_cache(_KEPT)(self._score)

    @property
    def kind(self) -> str:
        """Type of an output: text, the number of a choice, or a log-likelihood."""
        return {"generate_until": "str", "multiple_choice": "int"}.get(self._task.OUTPUT_TYPE, "float")

    @property
    def num_fewshot(self) -> int:
        """Worked examples before each question."""
        return int(self._task.config.num_fewshot or 0)

    def of(self, sample: Sample) -> Rescored | None:
        """What the output of a document comes to; `None` where the task has no such document."""
        if not 0 <= sample.doc < len(self._documents):
            return None
        return self.score(sample.doc, sample.output)

    def _score(self, number: int, output: str | int | float) -> Rescored:
        document = self._documents[number]
        target = self._task.doc_to_target(document)
        if not isinstance(output, str):
            return Rescored(target, {}, self._of_likelihood(document, output))
        if (self._task.config.repeats or 1) > 1:  # of several texts the first alone is on record
            return Rescored(target, {}, {})
        asked = Instance("generate_until", document, ("", {}), 0, (self._task.config.task, number, 1), [output])
        self._task._instances = [asked]
        self._task.apply_filters()
        answers: dict[str, str] = {}
        scores: dict[str, float] = {}
        for name, found in asked.filtered_resps.items():
            answers[name] = str(found)
            values = self._task.process_results(document, [found])
            scores |= {f"{metric},{name}": float(value) for metric, value in values.items() if isinstance(value, Real)}
        return Rescored(target, answers, scores)

    def _of_likelihood(self, document: Any, output: int | float) -> dict[str, float]:
        """The accuracy of the likeliest choice; of one likelihood nothing, as pooled metrics are made again of it."""
        if not isinstance(output, int) or callable(self._task.config.process_results):
            return {}
        choices = self._task.doc_to_choice(document)
        likelihoods = [(0.0 if place == output else -1.0, False) for place in range(len(choices))]
        values = self._task.process_results(document, likelihoods)
        return {"acc,none": float(values["acc"])} if "acc" in values else {}
