"""Measures the headroom of one model on tasks: runs the missing pieces and assembles the record.

Greedy decoding gives the same answer to the same prompt, so a score that was chosen because it is high has to be
measured again with another prompt: with other worked examples if the task has some, else with a line break before it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED, evaluate
from adaptive_bench.evaluation.loading import load_task
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.headroom.named_models import Subjects
from adaptive_bench.headroom.oracles import SetScores, at_saving
from adaptive_bench.headroom.static_sets import LayerSet, StaticSets, next_nested
from adaptive_bench.headroom.task_texts import TaskText, collect_texts, text_batches
from adaptive_bench.model.interventions import SHARE, SiteCosts, site_costs, static_model
from adaptive_bench.progress import Event, Line, Reporter
from adaptive_bench.runs.training_text import asked_since, task_inputs
from adaptive_bench.store import atomic
from adaptive_bench.store.evaluation import Sample
from adaptive_bench.store.keys import FLOORS, key_of
from adaptive_bench.store.measured import Floats
from adaptive_bench.tables.comparison import paired_difference
from adaptive_bench.tables.intervals import interval
from adaptive_bench.task import DocumentSplit, Metric, Task, metric_of

# Raise it when a number of this package changes: stored pieces of another version are not used.
VERSION = 3
# Number of documents whose texts are read token by token, and of their tokens: for the search of layers to leave out,
# and for the cost of each site. The latter needs fewer, since sensitive sites cost ten times the median.
TEXT_DOCUMENTS, SET_TOKENS, SITE_TOKENS = 32, 2048, 1024
_BITS = "bits_per_byte"


class Asking(NamedTuple):
    """One way to ask all documents: text before every prompt, and the seed with which worked examples are drawn."""

    prefix: str = ""
    seed: int = FEWSHOT_SEED


@dataclass(frozen=True)
class Asked:
    """The result of one model in one asking.

    Attributes:
        saved: Net FLOPs saved according to the ledger, as a share of the dense model's.
        scores: Score of each document in the metric's unit; `score`, the headline metric, is their mean.
        answers: Answer of each document, compared for equality; `None` if the task has no answers.
    """

    saved: float
    score: float
    scores: list[float]
    answers: list[str] | None


class LinesOnly(Reporter):
    """Passes on lines but no progress, so that many short evaluations are shown as one task."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def emit(self, event: Event) -> None:
        if isinstance(event, Line):
            self._reporter.emit(event)


@dataclass(frozen=True)
class Settings:
    """What a study depends on besides the model and the tasks: net savings (`levels`) at which headroom is read, the
    seed of the measurement of sites, and arguments of `evaluate`.
    """

    levels: tuple[float, ...]
    limit: int
    seed: int
    num_fewshot: int | None
    data_dir: Path | None
    batch_size: int

    @property
    def plain(self) -> dict[str, Any]:
        """Those on which results depend, besides the data itself."""
        return {name: value for name, value in asdict(self).items() if name not in ("data_dir", "batch_size")}


def study(subject: Subjects, tasks: Sequence[str], settings: Settings, out: Path, reporter: Reporter) -> dict[str, Any]:
    """The record of all tasks as plain values, for the first model. Pieces are kept in `<out>/headroom/` and reused
    when the same study is run again.
    """
    return {
        "kind": "headroom",
        "version": VERSION,
        "model": {
            "name": subject.name,
            "fingerprint": subject.fingerprint,
            "layers": subject.models[0].backbone.num_layers,
        },
        "settings": settings.plain,
        "share_skipping": SHARE,
        "tasks": [_TaskStudy(subject, find_task(name), settings, out, reporter).record() for name in tasks],
    }


class _TaskStudy:
    """The study of one task. Measurements are kept in a folder whose name is a key of everything they depend on."""

    def __init__(self, subject: Subjects, task: Task, settings: Settings, out: Path, reporter: Reporter) -> None:
        self._model, self._tokenizer = subject.models[0].backbone_model, subject.tokenizer
        self._task, self._settings, self._reporter = task, settings, reporter
        self._how: dict[str, Any] = {  # arguments that `evaluate` and `collect_texts` share
            "limit": settings.limit,
            "data_dir": settings.data_dir,
            "num_fewshot": settings.num_fewshot,
            "batch_size": settings.batch_size,
        }
        self._metric = metric_of(task.metrics[0])
        if self._metric.better == "unknown" or not (self._metric.is_mean or task.metrics[0].startswith(_BITS)):
            raise UsageError(
                f"Headroom is taken of a metric that is a mean over documents, or of {_BITS}, got {task.metrics[0]!r} "
                f"of the task {task.name!r}. Choose another task."
            )
        self._sign = 1 if self._metric.better == "higher" else -1  # factor on scores after which higher is better
        content = {
            "version": VERSION,
            "floors": FLOORS,
            "model": subject.fingerprint,
            "task": task.name,
            "settings": settings.plain,
            **task_inputs(task, settings.data_dir),
            **asked_since(task, settings.limit, settings.num_fewshot),
        }
        # A task's name may have a colon or a slash, such as `perplexity:novels`.
        self._folder = out / "headroom" / f"{task.name.replace(':', '-').replace('/', '-')}-{key_of(content)}"

    def record(self) -> dict[str, Any]:
        """The task's part of the record. A positive difference means that the oracle is better, for any metric."""
        task, metric, sign = self._task, self._metric, self._sign
        harness_task = load_task(task, self._settings.data_dir, self._settings.num_fewshot, "test")
        shots = harness_task.config.num_fewshot or 0
        asked_once = None
        if harness_task.config.output_type == "loglikelihood_rolling":
            asked_once = "it scores whole texts and has no prompt that could be asked in another way"
        # Without worked examples another asking is the same prompt after a line break, see `Asking`.
        elif not shots and self._tokenizer.encode("\nA") == self._tokenizer.encode("A"):
            asked_once = (
                "the tokenizer drops white space before a prompt, the only thing that another asking would change"
            )

        # Asked first, since it fails at little cost if the task has no validation documents.
        validation: dict[tuple[int, ...], Asked] = {(): self._ask((), "validation", Asking())}
        costs = SiteCosts.from_json(self._piece("sites", lambda: self._sites().to_json()))
        # K sets, and the score of each on validation documents.
        sets = self._search(max(self._settings.levels), validation)
        another = Asking(seed=FEWSHOT_SEED + 1) if shots else Asking("\n")
        ways = [Asking()] if asked_once else [Asking(), another]
        # [askings][sets]; the empty set is the first, so `some[0]` is the full model.
        runs = self._tested(sets, ways)
        dense = interval([runs[0][0].scores], (metric.low, metric.high))
        # [askings] of [K, D], without those that cannot be compared.
        texts = [[one.answers for one in some] for some in runs]
        answers = [np.array(some, dtype=object) for some in texts if None not in some]
        # Scores and agreement are turned to [D, K]. Where lower is better, scores get a minus sign here, and lose it in
        # `_level`.
        found = SetScores(
            scores=[sign * np.array([one.scores for one in some]).T for some in runs],
            agrees=[(some == some[0]).astype(float).T for some in answers],
            priors=np.array([sign * validation[skipped].score for skipped in sets]),
            costs=1.0 - np.mean([[one.saved for one in some] for some in runs], axis=0),
        )
        return {
            "task": task.name,
            "metric": task.metrics[0],
            "better": metric.better,
            "unit": metric.unit,
            "chance": task.chance if np.isfinite(task.chance) else None,
            "documents": dense.documents,
            "asked_once": asked_once,
            "dense": {"score": dense.mean, "low": dense.low, "high": dense.high},
            "sets": [
                {
                    "skipped": list(skipped),
                    "saved": 1.0 - float(found.costs[place]),
                    "validation": validation[skipped].score,
                    "test": [some[place].score for some in runs],
                    "scores": [some[place].scores for some in runs],
                }
                for place, skipped in enumerate(sets)
            ],
            "crossed_by": "agreement" if found.agrees else "gold",
            "levels": [_level(found, level, metric) for level in self._settings.levels],
            "sites": {
                "tokens": costs.tokens,
                "described": costs.described(),
                "median": costs.median,
                "rows": [
                    {"layer": layer, "branch": branch, "cost": cost} for (layer, branch), cost in costs.costs.items()
                ],
            },
        }

    def _piece(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A stored piece of the study; if it is missing or cannot be parsed, it is measured and stored."""
        file = self._folder / f"{name}.json"
        try:
            found: dict[str, Any] = json.loads(file.read_bytes())
        except (FileNotFoundError, ValueError):
            found = make()
            atomic.write_json(file, found)
        except OSError as error:
            raise EnvironmentProblem(
                f"Earlier measurements must be readable, but {str(file)!r} is not: {error.strerror}. Correct its "
                f"permissions or choose another folder with --out."
            ) from error
        return found

    def _sites(self) -> SiteCosts:
        device = self._model.device
        batches = [
            {
                "input_ids": one.input_ids,
                "attention_mask": one.attention_mask,
                # It has to be given, but the prescribed decisions do not read it.
                "continuation_mask": torch.zeros_like(one.input_ids, dtype=torch.bool),
            }
            for one in text_batches(_first_tokens(self._texts, SITE_TOKENS), self._settings.batch_size, device)
        ]
        layers = int(self._model.config.num_hidden_layers)
        with self._reporter.task(f"{self._task.name}: every site", total=2 * layers) as task:
            return site_costs(self._model, batches, seed=self._settings.seed, task=task)

    def _search(self, largest_saving: float, validation: dict[tuple[int, ...], Asked]) -> list[tuple[int, ...]]:
        """The candidate sets of layers to leave out, beginning with the empty set. Results on validation documents are
        added to `validation`.

        For 1, 2, ... layers they are the set with the best score on validation documents (among equal ones the set
        nearer to the full model) and the set in the chain of nested sets. The search ends when a set reaches the saving
        or only one layer would remain.
        """
        chosen: list[tuple[int, ...]] = [()]
        nested: tuple[int, ...] = ()
        for count in range(1, int(self._model.config.num_hidden_layers)):
            known = self._piece(f"sets-{count}", partial(self._finalists, count, nested))["sets"]
            sets = [LayerSet(tuple(one["skipped"]), one["divergence"]) for one in known]
            label = f"{self._task.name}: {count} layer(s) left out, validation documents"
            with self._reporter.task(label, total=len(sets)) as task:
                for one in sets:
                    validation[one.skipped] = self._ask(one.skipped, "validation", Asking())
                    task.advance()
            best = max(sets, key=lambda one: (self._sign * validation[one.skipped].score, -one.divergence))
            nested = next_nested(sets, nested).skipped
            chosen += dict.fromkeys((best.skipped, nested))  # often one and the same set
            if validation[best.skipped].saved >= largest_saving:
                break
        return chosen

    def _finalists(self, count: int, nested: tuple[int, ...]) -> dict[str, Any]:
        sets = self._static_sets.finalists(count, nested, self._reporter, self._task.name)
        return {"sets": [asdict(one) for one in sets]}

    def _tested(self, sets: Sequence[tuple[int, ...]], ways: Sequence[Asking]) -> list[list[Asked]]:
        """Results on test documents, [askings][sets]."""
        with self._reporter.task(f"{self._task.name}: sets on test documents", total=len(sets) * len(ways)) as task:
            runs: list[list[Asked]] = []
            for way in ways:
                runs.append([])
                for skipped in sets:
                    runs[-1].append(self._ask(skipped, "test", way))
                    task.advance()
        return runs

    def _ask(self, skipped: tuple[int, ...], split: DocumentSplit, way: Asking) -> Asked:
        """The result of the model without some layers on the documents of a split."""

        def measure() -> dict[str, Any]:
            model, name = static_model(self._model, skipped), self._task.metrics[0]
            how: dict[str, Any] = {"split": split, **way._asdict(), **self._how, "progress": LinesOnly(self._reporter)}
            evaluation, samples = evaluate(model, self._tokenizer, self._task.name, **how)
            additive = name.startswith(_BITS)
            values = _additive(samples) if additive else [one.scores.get(name, math.nan) for one in samples]
            if not values or not np.isfinite(values).all():
                raise UsageError(
                    f"Headroom needs a score of every document, but of {self._task.name!r} some of {len(values)} have "
                    f"none for {name!r}. Choose another task."
                )
            answers = _answers(samples, name.partition(",")[2])
            return asdict(Asked(evaluation.savings["net"], evaluation.scores[name], values, answers))

        # Hashed, since the text of an asking is a line break, which a file name should not have.
        asked = hashlib.sha256(repr(tuple(way)).encode()).hexdigest()[:8]
        return Asked(**self._piece(f"{split}-{'-'.join(map(str, skipped)) or 'all'}-{asked}", measure))

    @cached_property
    def _static_sets(self) -> StaticSets:
        return StaticSets(self._model, _first_tokens(self._texts, SET_TOKENS), self._settings.batch_size)

    @cached_property
    def _texts(self) -> list[TaskText]:
        """Texts of some validation documents."""
        return collect_texts(
            static_model(self._model, ()),
            self._tokenizer,
            self._task.name,
            split="validation",
            reporter=LinesOnly(self._reporter),
            **self._how | {"limit": min(self._settings.limit, TEXT_DOCUMENTS)},
        )


def _additive(samples: Sequence[Sample]) -> list[float]:
    """Bits of each document divided by the mean size of all, so that their mean is bits per byte, for any choice of
    model per document.
    """
    sizes = [len(str(one.target).encode()) for one in samples]
    mean_size = sum(sizes) / len(sizes)
    return [-float(one.output) / math.log(2) / mean_size for one in samples]  # the output is a log-likelihood in nats


def _answers(samples: Sequence[Sample], filter_name: str) -> list[str] | None:
    # Texts are compared after the metric's filter, which may leave only a number of them, and choices by their index. A
    # log-likelihood alone is no answer.
    if all(isinstance(one.output, str) for one in samples):
        return [one.answers.get(filter_name, str(one.output)) for one in samples]
    return [str(one.output) for one in samples] if all(isinstance(one.output, int) for one in samples) else None


def _first_tokens(texts: Sequence[TaskText], most_tokens: int) -> Sequence[TaskText]:
    """The first texts with at most this many tokens in total; at least one text."""
    ends = np.cumsum([len(text.read) for text in texts])
    return texts[: max(1, int((ends <= most_tokens).sum()))]


def _level(found: SetScores, level: float, metric: Metric) -> dict[str, Any]:
    read = at_saving(found, level)
    if read is None:
        return {"level": level, "reached": False}
    sign = 1 if metric.better == "higher" else -1
    return {
        "level": level,
        "reached": True,
        "static": sign * float(read.floor.mean()),
        "static_weights": read.weights.tolist(),
        "gold": sign * float(read.gold.mean()),
        "cross_fitted": None if read.crossed is None else sign * float(read.crossed.mean()),
        "headroom": None if read.crossed is None else _difference(read.crossed, read.floor, metric),
    }


def _difference(first: Floats, second: Floats, metric: Metric) -> dict[str, Any]:
    # Scores have a minus sign where lower is better.
    bounds = (metric.low, metric.high) if metric.better == "higher" else (-metric.high, -metric.low)
    # Clipped because rounding could leave the metric's range.
    # [1, D]: a study has a single model, so there is one row where trainings would have seeds.
    found = paired_difference(np.clip(first, *bounds)[None], np.clip(second, *bounds)[None], bounds)
    return {
        **{name: getattr(found, name) for name in ("difference", "low", "high", "p")},
        "holds_0": found.low is None or found.low <= 0.0,
    }
