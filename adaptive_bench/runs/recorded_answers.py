"""Are the scores of documents what their outputs come to? Asked of runs that were passed on, whose files may have been
edited: where the task of a record is here as it was then, every output is scored again and held to its own right
answer, and the record to what the task asks. Where it is not, that is said of the task.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

from adaptive_bench.config import DATA_VARIABLE, RunConfig
from adaptive_bench.data import data_root
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, message_of, one_line
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.evaluation.rescoring import LONGEST, Rescorer
from adaptive_bench.metric import metric_of
from adaptive_bench.runs.planning.task_inputs import DRAWN, asked_since, task_inputs
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.tables.document_values import is_pooled

_ROUNDING = 1e-9
_OF_SCORES = ("perplexity",)  # pooled over scores of documents, and not over their outputs
_Pair = tuple[Sample | None, str, Any, Any]  # of which document, what, on record, by the task


class RecordedAnswers:
    """Holds the points of a run to the tasks that are here.

    Attributes:
        unscored: By task why some of its scores were not made again from outputs, as the end of a sentence.
    """

    def __init__(self, config: RunConfig) -> None:
        self.unscored: dict[str, str] = {}
        self._config = config
        self._data_dir = data_root(None)  # never a folder that a stranger's configuration names
        self._given: dict[str, Any] = {"data_dir": self._data_dir, "num_fewshot": config.evaluation.num_fewshot}
        self._rescorers: dict[tuple[str, str], Rescorer] = {}

    def check(self, sweep: DialEvaluation, evaluation: Evaluation, samples: Sequence[Sample]) -> None:
        """Refuse a point that disagrees with its task.

        Raises:
            EnvironmentProblem: It does; the message names the first value that differs and what the task gives.
        """
        if why := self._why_not(sweep):
            self.unscored.setdefault(sweep.task, why)
            return
        where = f"{sweep.folder.name}, {sweep.spec}, dial value {evaluation.dial:g}"
        rescorer = self._rescorers[sweep.task, sweep.split]
        # Records of before limits drew are of the first documents.
        numbers = rescorer.documents(self._config.evaluation.limit, mixed=None if DRAWN in sweep.content else True)
        if self._config.evaluation.skip_overlong:
            numbers = [one for one in numbers if one not in (evaluation.data or {}).get("overlong", ())]
        if [(type(one.doc), one.doc) for one in samples] != [(int, number) for number in numbers]:
            which = "first" if numbers == range(len(numbers)) else "drawn"
            _refuse(where, f"its documents are the {which} {len(numbers)} of {sweep.task}, in their order")
        for sample in samples:
            if problem := rescorer.problem(sample):
                _refuse(where, f"of the output of document {sample.doc}: {problem}")
        if (longest := max((len(one.output) for one in samples if isinstance(one.output, str)), default=0)) > LONGEST:
            self.unscored[sweep.task] = f"an output of {longest} characters is too long for that"
            return
        try:
            found = next((pair for pair in self._pairs(sweep, evaluation, samples) if pair[2] != pair[3]), None)
        except AdaptiveBenchError:
            raise
        except Exception as error:  # noqa: BLE001 - filters and metrics are code of whoever wrote the task
            self.unscored[sweep.task] = (
                f"the task's own code fails at one ({type(error).__name__}: {message_of(error)})"
            )
            return
        if found is not None and (other := self._other_rules(sweep)):
            self.unscored[sweep.task] = other
        elif found is not None:
            of, what, said, known = found
            of_document = "" if of is None else f"of document {of.doc}, output {_short(of.output)}, "
            _refuse(where, f"{of_document}{what} is {_short(said)}, the task {sweep.task} gives {_short(known)}")
        for metric in find_task(sweep.task).metrics:
            if metric in evaluation.scores and not self._is_made_again(metric, rescorer, samples):
                self.unscored.setdefault(sweep.task, f"{metric} cannot be computed from what its records keep")

    def _why_not(self, sweep: DialEvaluation) -> str:
        """Why a task cannot be asked; an empty text where it can, and is loaded."""
        task, place = find_task(sweep.task), (sweep.task, sweep.split)
        if place in self._rescorers:
            return ""
        if task.data_folders is None:
            return "it is not known which files the task reads"
        if task.data_folders and not task_inputs(task, self._data_dir)["local_data"]:
            return f"its documents are not here ({DATA_VARIABLE} names the folder they are in)"
        try:
            self._rescorers[place] = Rescorer(sweep.task, **self._given, split=sweep.split)
        except AdaptiveBenchError as error:
            return f"the task cannot be loaded here: {message_of(error)}".removesuffix(".")
        return ""

    def _other_rules(self, sweep: DialEvaluation) -> str:
        """Why a score may honestly be another here: then it shows nothing that it is."""
        task = find_task(sweep.task)
        now = task_inputs(task, self._data_dir) | asked_since(task, None, self._given["num_fewshot"])
        if any(sweep.content.get(name) != value for name, value in now.items()):
            return "another version of the task, or of its documents, is here, and does not agree with its records"
        made, here = (sweep.record.read("env.json") or {}).get("lm-eval"), version("lm-eval")
        return "" if made == here else f"lm-eval is {here} here, {made} then, and does not agree with its records"

    def _pairs(self, sweep: DialEvaluation, evaluation: Evaluation, samples: Sequence[Sample]) -> Iterator[_Pair]:
        """What is on record beside what the task gives."""
        place, headline = (sweep.task, sweep.split), find_task(sweep.task).metrics[0]
        rescorer = self._rescorers[place]
        yield None, "num_fewshot", evaluation.num_fewshot, rescorer.num_fewshot
        for sample in samples:
            again = rescorer.of(sample)
            yield sample, "the target", sample.target, again.target
            for name, answer in again.answers.items():
                yield sample, f"the answer by {name}", sample.answers.get(name), answer
            for metric, score in again.scores.items():
                found = sample.scores.get(metric)
                is_same = found is not None and math.isclose(found, score, abs_tol=_ROUNDING)
                yield sample, metric, found, found if is_same else score
            yield sample, "correct", sample.correct, sample.scores.get(headline)

    @staticmethod
    def _is_made_again(metric: str, rescorer: Rescorer, samples: Sequence[Sample]) -> bool:
        """Whether a score follows from outputs: by its documents' scores, or pooled over the outputs themselves."""
        if is_pooled(metric) and metric.split(",")[0] not in _OF_SCORES:
            return True
        is_made_of_scores = metric_of(metric).is_mean or is_pooled(metric)
        return is_made_of_scores and all(metric in rescorer.of(sample).scores for sample in samples[:1])


def _refuse(where: str, what: str) -> None:
    raise EnvironmentProblem(f"A measured point agrees with its task, but of {where}, {what}. Submit the run again.")


def _short(value: Any) -> str:
    return one_line(repr(value), 100)
