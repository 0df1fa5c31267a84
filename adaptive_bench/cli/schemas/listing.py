"""Rows of `adaptive-bench list --json`."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12


class NamedRow(TypedDict):
    """A model, a family of models or a config.

    Attributes:
        origin: The package or plugin file it is from.
    """

    name: str
    description: str
    origin: str


class MethodRow(TypedDict):
    """A method.

    Attributes:
        parameters: What a spec can set in its brackets.
        origin: The package or plugin file it is from.
    """

    name: str
    description: str
    parameters: list[str]
    origin: str


class TaskRow(TypedDict):
    """A task, or a group of them.

    Attributes:
        kind: `generative`, `loglikelihood`, `group`, or of a task that is made of what follows a colon `NAME:DATA`.
        shots: Worked examples before each question; `null` for a group.
        chance: Score of a guess; `null` where there is none.
        source: Where its documents are from; of a group its members.
    """

    name: str
    description: str
    kind: str
    shots: int | None
    chance: float | None
    source: str
    licence: str | None
    origin: str


class OverheadRow(TypedDict):
    """What a method adds to a model; all `null` but `problem` where it does not fit it.

    Attributes:
        parameters, parameter_bytes: Added.
        parameters_share: Of the model's parameters.
        decision_macs_per_token, adapter_macs_per_token: Multiply-accumulates.
        decision_macs_share: Of those of the dense model.
        problem: Why the method does not fit the model.
    """

    method: str
    parameters: int | None
    parameters_share: float | None
    parameter_bytes: int | None
    decision_macs_per_token: float | None
    decision_macs_share: float | None
    adapter_macs_per_token: float | None
    problem: str | None


class RunRow(TypedDict):
    """A run.

    Attributes:
        run: Its name.
        methods: Specs.
        steps: Of a training; `null` where the run does not say.
        documents: Most test documents of a task; `null` for all.
        shots: Worked examples before each question; `null` for each task's own number.
        date: When it ended, or began where it has not ended: `2026-11-21 19:20`; empty where nobody knows.
        problem: What is damaged; empty where nothing is.
        folder: Its path.
    """

    run: str
    state: Literal["done", "partial", "unfinished", "damaged"]
    model: str
    methods: list[str]
    tasks: list[str]
    seeds: list[int]
    steps: int | None
    documents: int | None
    shots: int | None
    date: str
    problem: str
    folder: str


class KeyRow(TypedDict):
    """A key of a config.

    Attributes:
        name: Its dotted path.
        default: Of a config that does not name it; `null` as well where the key is required.
    """

    name: str
    description: str
    required: bool
    default: JsonValue


class SchemaRow(TypedDict):
    """A schema.

    Attributes:
        command: What prints it.
    """

    name: str
    command: str
    description: str
