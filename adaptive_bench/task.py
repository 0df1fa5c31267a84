"""What the core knows of a task: its lm-eval name and folder, its headline metric, its data and its training text."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from adaptive_bench.errors import PluginFault, one_line
from adaptive_bench.validation import DESCRIPTION, called_as, can_take, is_description, is_utf8

# Documents a table shows, or others of the same task that choices (targets, rates, tuning) are made on.
DocumentSplit = Literal["test", "validation"]
_Kind = Literal["generative", "loglikelihood"]


@dataclass(frozen=True)
class Example:
    """One training text. The loss covers `completion` only; the encoder appends the end-of-sequence token.

    Without a prompt it is a document of a corpus: such documents are packed into sequences of full length.
    """

    prompt: str
    completion: str


@dataclass(frozen=True)
class ExampleRequest:
    """Which training text is wanted: `count` examples of a split, drawn with `seed`, from `data_dir` if local.

    A corpus gives as many documents as `count` sequences of `length` tokens need.
    """

    split: Literal["train", "calibration"]
    count: int
    seed: int
    data_dir: Path | None = None
    length: int = 1024


@dataclass(frozen=True)
class Task:
    """A task as a plugin registers it (entry-point group `adaptive_bench.tasks`).

    Attributes:
        name: Name of the task here and in lm-eval.
        kind: `generative` (the model writes an answer) or `loglikelihood` (the model scores given answers).
        folder: Folder with the lm-eval YAML file.
        metrics: lm-eval metric keys, for example `exact_match,strict-match`; the first one is the headline.
        chance: Score of a guess.
        levels: Matched savings reported by default, each a share of the dense model.
        training: Gives training text; `None` when the task has none. Train, calibration and test items are disjoint.
        num_fewshot: Worked examples before each question.
        data_folders: Folders of a local data folder that it reads: their content is part of a record's key. `None` if
            that is not known; then the place of the local data folder is.
        validation_split: lm-eval split whose documents are neither trained on, calibrated on nor tested, so that
            settings may be chosen on them; `None` if there is none.
        source: Where the documents come from, for the reader.
        licence: Terms of the documents.
        text_source: What the training text is, for the reader and for records; empty without training text.
        other_files: Files outside `folder` that the questions or scores depend on; their content is part of a record's
            key.
        harness_name: Name in lm-eval where it is not `name`.
        argument: Handed to the task's `custom_dataset` function as `argument`; what stands after the colon in a name
            such as `perplexity:novels`.
        mixed: Whether its first documents stand for all of them, as they were drawn at random or take turns: `--limit`
            then takes these, where of other tasks it draws.
    """

    name: str
    description: str
    kind: _Kind
    folder: Path
    metrics: tuple[str, ...]
    chance: float
    levels: tuple[float, ...]
    training: Callable[[ExampleRequest], list[Example]] | None
    num_fewshot: int = 0
    data_folders: tuple[str, ...] | None = None
    validation_split: str | None = None
    source: str = ""
    licence: str = ""
    text_source: str = ""
    other_files: tuple[Path, ...] = ()
    harness_name: str = ""
    argument: str = ""
    mixed: bool = False

    def __post_init__(self) -> None:
        """Refuse what a plugin may have put where something else belongs.

        Raises:
            PluginFault: A field is of another kind, or there is no metric or no level.
        """
        levels = self.levels if isinstance(self.levels, tuple) else ()
        are_levels = all(_is_number(level) and 0 <= level < 1 for level in levels)
        most = 1.0 if self.kind == "generative" else sys.float_info.max  # bits per byte are no share
        has_chance = _is_number(self.chance) and (math.isnan(self.chance) or 0 <= self.chance <= most)
        split = self.validation_split
        for name, wanted, holds in (
            ("kind", "'generative' or 'loglikelihood'", self.kind in get_args(_Kind)),
            ("folder", "a pathlib.Path", isinstance(self.folder, Path)),
            (
                "metrics",
                "a tuple of one or more different keys of lm-eval, such as 'exact_match,strict-match'",
                bool(self.metrics) and _are_names(self.metrics) and len(set(self.metrics)) == len(self.metrics),
            ),
            ("chance", "the score of guessing, of a generative task at most 1, or nan where nobody can", has_chance),
            (
                "levels",
                "a tuple of one or more different shares from 0 to below 1 (0.05 is 5 %)",
                levels and are_levels and len(set(levels)) == len(levels),
            ),
            ("name", "a name", _is_name(self.name)),
            *(
                (name, DESCRIPTION, is_description(getattr(self, name)))
                for name in ("description", "source", "licence", "text_source", "harness_name", "argument")
            ),
            ("other_files", "a tuple of pathlib.Path of files that are there", _are_files(self.other_files)),
            (
                "training",
                "a function of an ExampleRequest, or None",
                self.training is None or _takes_one(self.training),
            ),
            ("num_fewshot", "a whole number from 0 on", type(self.num_fewshot) is int and self.num_fewshot >= 0),
            (
                "data_folders",
                "a tuple of paths below the data folder, or None",
                self.data_folders is None or (_are_names(self.data_folders) and all(map(_is_below, self.data_folders))),
            ),
            ("validation_split", "the name of a split or None", split is None or _is_name(split)),
            ("mixed", "True or False", isinstance(self.mixed, bool)),
        ):
            if not holds:
                raise _fault("task", self, name, wanted)

    def examples(self, request: ExampleRequest) -> list[Example]:
        """What `training` gives.

        Raises:
            PluginFault: That is something else than a list of Examples of two texts, the second of them not empty.
        """
        assert self.training is not None
        given: object = self.training(request)
        for one in given if isinstance(given, list | tuple) else [given]:
            parts = (one.prompt, one.completion) if isinstance(one, Example) else ()
            if not parts or not all(isinstance(part, str) and is_utf8(part) for part in parts):
                raise PluginFault(
                    f"The training text of the task {self.name!r} is a list of Examples of two texts, got "
                    f"{one_line(repr(one), 60)}. Correct the plugin."
                )
            if not parts[1].strip():
                raise PluginFault(
                    f"The loss covers the completion of an Example, but the task {self.name!r} gives one without any, "
                    f"{one_line(repr(one), 60)}. Correct the plugin."
                )
        return list(given) if isinstance(given, list | tuple) else []


def _are_files(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, Path) and one.is_file() for one in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_names(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_is_name, value))


def _takes_one(value: object) -> bool:
    return callable(value) and can_take(value, 1)


def _is_below(path: str) -> bool:
    parts = Path(path).parts
    return not Path(path).is_absolute() and ".." not in parts


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and is_description(value)


def _fault(what: str, thing: Any, field: str, wanted: str) -> PluginFault:
    name, said = one_line(repr(thing.name), 60), called_as(field, getattr(thing, field))
    return PluginFault(f"Of the {what} {name}, {field} is {wanted}, got {said}. Correct the plugin.")


@dataclass(frozen=True)
class TaskGroup:
    """Several tasks under one name, registered like a task; where task names are given, it stands for its members."""

    name: str
    description: str
    members: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse what a plugin may have put where something else belongs.

        Raises:
            PluginFault: A field is of another kind, or the group has no member or itself for one.
        """
        are_members = bool(self.members) and _are_names(self.members) and self.name not in self.members
        for field, wanted, holds in (
            ("name", "a name", _is_name(self.name)),
            ("description", DESCRIPTION, is_description(self.description)),
            ("members", "a tuple of one or more names of other tasks", are_members),
        ):
            if not holds:
                raise _fault("group of tasks", self, field, wanted)


@dataclass(frozen=True)
class OpenTask:
    """A task that needs an argument, given after a colon (`perplexity:novels`); registered like a task.

    Attributes:
        make: Gives the task for an argument; raises `UsageError` for one it cannot use.
    """

    name: str
    description: str
    make: Callable[[str], Task]

    def __post_init__(self) -> None:
        """Refuse what a plugin may have put where something else belongs.

        Raises:
            PluginFault: A field is of another kind.
        """
        for field, wanted, holds in (
            ("name", "a name", _is_name(self.name)),
            ("description", DESCRIPTION, is_description(self.description)),
            ("make", "a function that gives the task of an argument", _takes_one(self.make)),
        ):
            if not holds:
                raise _fault("task", self, field, wanted)


def check_registered(name: str, thing: object, origin: str) -> Task | TaskGroup | OpenTask:
    """What a plugin registered as a task.

    Args:
        origin: Where it comes from.

    Raises:
        PluginFault: It is none.
    """
    if not isinstance(thing, Task | TaskGroup | OpenTask):
        raise PluginFault(
            f"What is registered as a task is an adaptive_bench.task.Task, got {type(thing).__name__} under {name!r} "
            f"({origin}). Correct the plugin."
        )
    return thing
