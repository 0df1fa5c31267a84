"""Defines what the core knows of a task: its lm-eval name and folder, its data and its training text; and of metrics:
which way is better, whether it is a share, and what its bounds are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from adaptive_bench.errors import PluginFault

# `test` documents give the scores of tables; choices (targets, rates, tuning) are made on `validation` documents.
DocumentSplit = Literal["test", "validation"]
_Name = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True)
class Example:
    """One training text. The loss covers `completion` only; the encoder appends the end-of-sequence token.

    An example without a prompt is a document of a corpus; such documents are packed into sequences of full length.
    """

    prompt: str
    completion: str


@dataclass(frozen=True)
class ExampleRequest:
    """A request for training text: `count` examples of a split, drawn with `seed`, from `data_dir` if it is given.

    A corpus gives as many documents as `count` sequences of `length` tokens need.
    """

    split: Literal["train", "calibration"]
    count: int
    seed: int
    data_dir: Path | None = None
    length: int = 1024


@checked(frozen=True)
class Task:
    """A task as a plugin registers it (entry-point group `adaptive_bench.tasks`).

    Attributes:
        name: Name of the task here and in lm-eval.
        kind: `generative` (the model writes an answer) or `loglikelihood` (the model scores given answers).
        folder: Folder with the lm-eval YAML file.
        metrics: lm-eval metric keys, for example `exact_match,strict-match`; the first one is the headline.
        chance: Score of a guess.
        training: Gives training text; `None` if the task has none. Train, calibration and test items are disjoint.
        num_fewshot: Worked examples before each question.
        data_folders: Subfolders of the local data folder that the task reads; their content is part of a record's key.
            `None` if they are not known; then the path of the local data folder is part of the key instead.
        validation_split: lm-eval split whose documents are not used for training, calibration or testing, so that
            settings may be chosen on them; `None` if there is none.
        source: Where the documents come from, for the reader.
        licence: Terms of the documents.
        text_source: What the training text is, for the reader and for records; empty without training text.
        other_files: Files outside `folder` that the questions or scores depend on; their content is part of a record's
            key.
        harness_name: Name in lm-eval, if it is not `name`.
        argument: Passed to the task's `custom_dataset` function as `argument`: the text after the colon in a name such
            as `perplexity:novels`.
        mixed: Whether the first documents are representative of all, because they were drawn at random or take turns.
            `--limit` then takes the first documents; for other tasks it makes a seeded draw.
    """

    name: _Name
    description: str
    kind: Literal["generative", "loglikelihood"]
    folder: Path
    metrics: Annotated[tuple[_Name, ...], Field(min_length=1)]
    chance: float
    training: Callable[[ExampleRequest], list[Example]] | None
    num_fewshot: Annotated[int, Field(ge=0)] = 0
    data_folders: tuple[str, ...] | None = None
    validation_split: str | None = None
    source: str = ""
    licence: str = ""
    text_source: str = ""
    other_files: tuple[Path, ...] = ()
    harness_name: str = ""
    argument: str = ""
    mixed: bool = False

    def examples(self, request: ExampleRequest) -> list[Example]:
        """Return the training text for a request."""
        assert self.training is not None
        return list(self.training(request))


@checked(frozen=True)
class TaskGroup:
    """Several tasks under one name, registered like a task; in a list of task names it stands for its members."""

    name: _Name
    description: str
    members: Annotated[tuple[_Name, ...], Field(min_length=1)]


@checked(frozen=True)
class OpenTask:
    """A task that needs an argument, given after a colon (`perplexity:novels`); registered like a task.

    Attributes:
        make: Returns the task for an argument; raises `UsageError` for an argument that it cannot use.
    """

    name: str
    description: str
    make: Callable[[str], Task]


def check_registered(name: str, thing: object, origin: str) -> Task | TaskGroup | OpenTask:
    """Return an object that a plugin (from `origin`) registered as a task.

    Raises:
        PluginFault: The object is not a task.
    """
    if not isinstance(thing, Task | TaskGroup | OpenTask):
        raise PluginFault(
            f"A registered task must be an adaptive_bench.task.Task, got {type(thing).__name__} under {name!r} "
            f"({origin}). Correct the plugin."
        )
    return thing


@dataclass(frozen=True)
class Metric:
    """Facts about a metric. One that is not listed below is a number of unknown direction without bounds.

    Attributes:
        better: Which way is better.
        unit: A `share` is shown in percent, a `number` as it is.
        low, high: Bounds of its values; infinite if there is none.
        is_mean: Whether it is the mean of the values of single documents, if these are numbers.
    """

    better: Literal["higher", "lower", "unknown"] = "unknown"
    unit: Literal["share", "number"] = "number"
    low: float = -math.inf
    high: float = math.inf
    is_mean: bool = False


_SHARE = Metric("higher", "share", 0.0, 1.0)
_MEAN = Metric("higher", "share", 0.0, 1.0, is_mean=True)
_PERCENT = Metric("higher", "number", 0.0, 100.0)
_UNCERTAINTY = Metric("lower", "number", 1.0)  # perplexities
_KNOWN = {
    **dict.fromkeys(("acc", "acc_norm", "acc_bytes", "exact_match", "em"), _MEAN),
    "f1": _SHARE,
    "unparsable": Metric("lower", "share", 0.0, 1.0, is_mean=True),  # share of answers that cannot be read
    "mcc": Metric("higher", "number", -1.0, 1.0),
    **dict.fromkeys(("bleu", "chrf"), _PERCENT),
    "ter": Metric("lower", "number", 0.0),
    "brier_score": Metric("lower", "number", 0.0, 2.0),
    **dict.fromkeys(("perplexity", "word_perplexity", "byte_perplexity"), _UNCERTAINTY),
    "bits_per_byte": Metric("lower", "number", 0.0),
}


def metric_of(key: str) -> Metric:
    """Return the metric of an lm-eval key such as `exact_match,strict-match`; the filter does not matter."""
    return _KNOWN.get(key.split(",")[0], Metric())
