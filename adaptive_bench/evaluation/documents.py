"""Checks that a task's documents have a question, an answer and choices, and explains errors of lm-eval about them."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import UndefinedError
from lm_eval.api.task import ConfigurableTask
from lm_eval.api.task import Task as HarnessTask

from adaptive_bench import error_origin
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, message_of, one_line


def answer_of(harness: HarnessTask, document: Any, where: str) -> tuple[str, ...]:
    """The texts of a document's answer: the target, or every choice.

    Args:
        where: The document in words, such as `document 3 of 200 of 'mine'`.

    Raises:
        EnvironmentProblem: The document has no question, no answer or no choices.
        PluginFault: The task's own code fails for the document.
    """
    try:
        prompt, target = harness.doc_to_text(document), harness.doc_to_target(document)
        choices = list(harness.doc_to_choice(document)) if harness.OUTPUT_TYPE == "multiple_choice" else []
    except AdaptiveBenchError:
        raise
    except Exception as error:  # templates and a task's own code may raise anything
        error_origin.blame(error, f"{where[0].upper()}{where[1:]} cannot be put into the form of a question")
        raise EnvironmentProblem(
            f"Every document has what the task asks for, but {where} cannot be put into its form: "
            f"{type(error).__name__}: {message_of(error)[:200]} (fields: {_fields(document)}). Correct that row of "
            f"the data."
        ) from error
    if harness.OUTPUT_TYPE == "multiple_choice":
        _check_choices(harness, prompt if getattr(harness, "multiple_input", 0) else target, choices, where)
        return tuple(map(str, choices))
    if target is None or not str(target).strip():
        raise EnvironmentProblem(
            f"Every document has an answer, but {where} has none (fields: {_fields(document)}). Correct that row of "
            f"the data."
        )
    if isinstance(prompt, str) and not prompt.strip() and not harness.OUTPUT_TYPE.endswith("rolling"):
        raise EnvironmentProblem(
            f"Every document has a question, but that of {where} is empty (fields: {_fields(document)}). Correct "
            f"that row of the data."
        )
    return tuple(map(str, target)) if isinstance(target, list) else (str(target),)


def problem_of(error: BaseException) -> str:
    """What a YAML file does not find in its documents, where lm-eval only says `KeyError: 'exam'`; empty if unknown."""
    frames = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    task = next((one for one in reversed(frames) if isinstance(one, ConfigurableTask)), None)
    given = None if task is None else vars(task).get("dataset")
    if task is None or not isinstance(given, Mapping):
        return ""
    for key in ("test_split", "validation_split", "training_split", "fewshot_split"):
        if (named := getattr(task.config, key)) is not None and named not in given:
            return f"its YAML file names the {key} {named!r}, but its documents have {', '.join(map(repr, given))}"
    if isinstance(error, UndefinedError):
        fields = _fields(next(iter(given[task.config.test_split or task.config.validation_split]), None))
        return f"{message_of(error)} in a template of its YAML file; a document has {fields}"
    return ""


def _check_choices(harness: HarnessTask, right: Any, choices: Sequence[Any], where: str) -> None:
    by_itself = isinstance(right, str) and callable(harness.config.process_results)  # the code may look the text up
    texts = list(map(str, choices))
    if not (by_itself or _is_among(right, choices)) or not all(text.strip() for text in texts):
        raise EnvironmentProblem(
            f"Every document has choices and the right one, by its number from 0 to below {len(choices)} or its "
            f"text, but {where} has {one_line(repr(right), 60)} for {one_line(repr(list(choices)), 100)}. Correct that "
            f"row of the data, or what the task makes of it."
        )


def _is_among(right: Any, choices: Sequence[Any]) -> bool:
    """Whether the right answer, or each of several, is among the choices. Negative numbers do not count, although
    lm-eval would count them from the end.
    """
    if isinstance(right, list):
        return bool(right) and all(_is_among(one, choices) for one in right)
    return right in choices if isinstance(right, str) else right in range(len(choices))


def _fields(document: Any) -> str:
    if not isinstance(document, dict):
        return type(document).__name__
    return one_line(", ".join(f"{key} {value!r:.40}" for key, value in document.items()), 300)
