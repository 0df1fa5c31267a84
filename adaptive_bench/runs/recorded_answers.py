"""Are the scores of documents what their outputs come to? Asked of runs that were passed on, whose files may have been
edited: where the task of a record is here as it was then, every output is scored again, and held to its own right
answer, and the record to what the task asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from adaptive_bench.config import DATA_VARIABLE, RunConfig
from adaptive_bench.data import data_root
from adaptive_bench.errors import EnvironmentProblem, one_line
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.evaluation.replay import replay
from adaptive_bench.evaluation.rescoring import Rescored, Rescorer
from adaptive_bench.runs.planning.task_inputs import task_inputs
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.tables.document_values import is_pooled

_ROUNDING = 1e-9
_ASKED = ("source", "task_version", "documents_sha256", "gold_sha256", "prompts_sha256", "settings_sha256")
_Found = tuple[str, Any, Any]  # of what, on record, by the task


class RecordedAnswers:
    """Holds the points of a run to the tasks that are here.

    Attributes:
        unscored: By task why its outputs were not scored again, as the end of a sentence.
    """

    def __init__(self, config: RunConfig) -> None:
        self.unscored: dict[str, str] = {}
        self._config = config
        self._data_dir = data_root(None)  # never a folder that a stranger's configuration names
        self._given: dict[str, Any] = {"data_dir": self._data_dir, "num_fewshot": config.evaluation.num_fewshot}
        self._inputs: dict[str, dict[str, Any]] = {}
        self._rescorers: dict[tuple[str, str], Rescorer] = {}
        self._asked: dict[tuple[str, str], dict[str, Any]] = {}

    def check(self, sweep: DialEvaluation, evaluation: Evaluation, samples: Sequence[Sample]) -> None:
        """Refuse a point whose documents have other scores, answers or targets than the task gives their outputs, or
        that says something else of what was asked.

        Raises:
            EnvironmentProblem: It is one; the first value is named with both.
        """
        if why := self._why_not(sweep):
            self.unscored.setdefault(sweep.task, why)
            return
        found = next((one for one in self._different(sweep, evaluation, samples) if one is not None), None)
        if found is not None:
            what, said, known = found
            raise EnvironmentProblem(
                f"The documents of a measured point are scored by what was written, but in {sweep.folder.name}, "
                f"{sweep.spec}, at the dial value {evaluation.dial:g}, {what} is {one_line(repr(said), 100)}, by the "
                f"task {sweep.task} {one_line(repr(known), 100)}. Submit the run again."
            )

    def _why_not(self, sweep: DialEvaluation) -> str:
        task = find_task(sweep.task)
        if sweep.task not in self._inputs:
            self._inputs[sweep.task] = task_inputs(task, self._data_dir)
        known = self._inputs[sweep.task]
        if task.data_folders != () and not (task.data_folders and known["local_data"]):
            return f"its documents are not here ({DATA_VARIABLE} names the folder they are in)"
        if any(sweep.content.get(name) != value for name, value in known.items()):
            return "it is another version of the task, or of its documents, that is here"
        return ""

    def _different(
        self, sweep: DialEvaluation, evaluation: Evaluation, samples: Sequence[Sample]
    ) -> Iterator[_Found | None]:
        place, headline = (sweep.task, sweep.split), find_task(sweep.task).metrics[0]
        if place not in self._rescorers:
            self._rescorers[place] = Rescorer(sweep.task, **self._given, split=sweep.split)
        rescorer = self._rescorers[place]
        yield _unlike("the list of documents", [sample.doc for sample in samples], list(range(len(samples))))
        for sample in samples:
            kind = type(sample.output).__name__
            yield _unlike(f"the type of the output of document {sample.doc}", kind, rescorer.kind)
        if place not in self._asked:
            self._asked[place] = self._what_is_asked(sweep, samples)
        yield _unlike("num_fewshot", evaluation.num_fewshot, rescorer.num_fewshot)
        said = evaluation.data or {}  # of early records there is none
        for name in self._asked[place].keys() & said.keys():
            yield _unlike(name, said[name], self._asked[place][name])
        for sample in samples:
            if (again := rescorer.of(sample)) is None:
                yield "a document", sample.doc, None
            else:
                yield from () if _holds(sample, again) else _of_document(sample, again)
                if headline not in again.scores and not is_pooled(headline):
                    self.unscored.setdefault(sweep.task, f"no record has all that {headline} is made of")
            yield _unlike(f"correct of document {sample.doc}", sample.correct, sample.scores.get(headline))

    def _what_is_asked(self, sweep: DialEvaluation, samples: Sequence[Sample]) -> dict[str, Any]:
        """What the task says of its source and of as many documents, their prompts and their right answers."""
        _, data = replay(sweep.task, samples, **self._given, split=sweep.split)
        left_out = {"prompts_sha256"} if self._config.chat_template else set()
        left_out |= {"settings_sha256"} if self._config.evaluation.temperature else set()
        return {name: data[name] for name in _ASKED if name in data and name not in left_out}


def _of_document(sample: Sample, again: Rescored) -> Iterator[_Found | None]:
    where = f"of document {sample.doc}, with the output {one_line(repr(sample.output), 60)}, "
    yield _unlike(f"{where}the target", str(sample.target), str(again.target))
    for name, answer in again.answers.items():
        yield _unlike(f"{where}the answer by {name}", sample.answers.get(name), answer)
    for metric, score in again.scores.items():
        if not _same(sample.scores.get(metric), score):
            yield f"{where}{metric}", sample.scores.get(metric), score


def _holds(sample: Sample, again: Rescored) -> bool:
    """Asked first of each of a million documents: texts about them take longer."""
    return (
        again.answers.items() <= sample.answers.items()
        and (sample.target is again.target or str(sample.target) == str(again.target))
        and all(_same(sample.scores.get(metric), score) for metric, score in again.scores.items())
    )


def _same(said: float | None, score: float) -> bool:
    return said is not None and math.isclose(said, score, abs_tol=_ROUNDING)


def _unlike(what: str, said: Any, known: Any) -> _Found | None:
    return None if said == known else (what, said, known)
