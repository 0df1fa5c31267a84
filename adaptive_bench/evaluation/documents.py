"""Whether the documents of a task have what it asks for, and what of it is missing where lm-eval stumbles over it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jinja2 import UndefinedError
from lm_eval.api.registry import filter_registry
from lm_eval.api.task import ConfigurableTask
from lm_eval.api.task import Task as HarnessTask

from adaptive_bench import faults
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, message_of, one_line

_MARK = "\N{OBJECT REPLACEMENT CHARACTER}"  # stands for a value that is missing: no text has it
_NO_DICTIONARY = "its code gives a dictionary with a datasets.Dataset for each split"


def answer_of(harness: HarnessTask, document: Any, where: str) -> tuple[str, ...]:
    """The texts a document's answer consists of: the target, or every choice.

    Args:
        where: The document, such as `document 3 of 200 of 'mine'`.

    Raises:
        EnvironmentProblem: It has no question, no answer or no choices, or a value that these are made of is missing.
        PluginFault: The task's own code fails at it.
    """
    try:
        prompt, target = harness.doc_to_text(document), harness.doc_to_target(document)
        choices = list(harness.doc_to_choice(document)) if harness.OUTPUT_TYPE == "multiple_choice" else []
        missing = next(_missing(harness, document), None)
    except AdaptiveBenchError:
        raise
    except Exception as error:  # templates and a task's own code
        faults.blame(error, f"{where[0].upper()}{where[1:]} cannot be put into the form of a question")
        raise EnvironmentProblem(
            f"Every document has what the task asks for, but {where} cannot be put into its form: "
            f"{type(error).__name__}: {message_of(error)[:200]} (fields: {_fields(document)}). Correct that row of "
            f"the data."
        ) from error
    if missing is not None:
        raise EnvironmentProblem(
            f"Every document has what the task asks for, but {where} has no value (null) in {missing!r}, which its "
            f"question or answer is made of. Correct that row of the data."
        )
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
    """What of a task's documents lm-eval stumbled over while it made the task, as a sentence; else an empty text.

    lm-eval says `KeyError: 'exam'`; what it had in hand then is looked at here.
    """
    frames = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    task = next((one for one in reversed(frames) if isinstance(one, ConfigurableTask)), None)
    if task is None or "dataset" not in vars(task):
        return ""
    given, config = task.dataset, task.config
    if isinstance(error, KeyError) and (named := _unknown_filter(config.filter_list)) is not None:
        return f"its YAML file names the filter {one_line(named, 60)!r}, and lm-eval has none of that name"
    if not isinstance(given, Mapping):
        return f"{_NO_DICTIONARY}, got {type(given).__name__}"
    for key in ("test_split", "validation_split", "training_split", "fewshot_split"):
        if (named := getattr(config, key)) is not None and named not in given:
            known = ", ".join(map(repr, given)) or "none"
            return f"its YAML file names the {key} {named!r}, but its documents have {known}"
    split = config.test_split or config.validation_split
    if split is None:
        return "its YAML file names no test_split"
    if not hasattr(given[split], "features"):
        return f"{_NO_DICTIONARY}, got {type(given[split]).__name__} for {split!r}"
    if not len(given[split]):
        return f"the split {split!r}, on which it is tested, has no documents"
    return _problem_of_first(task, given[split][0], error)


def _unknown_filter(listed: Any) -> str | None:
    for filters in listed or []:
        for step in filters["filter"]:
            if isinstance(step["function"], str) and step["function"] not in filter_registry:
                return str(step["function"])
    return None


def _problem_of_first(task: ConfigurableTask, document: Any, error: BaseException) -> str:
    if isinstance(error, UndefinedError):
        return f"{message_of(error)} in a template of its YAML file; a document has {_fields(document)}"
    try:
        answer_of(task, document, "its first document")
    except EnvironmentProblem as problem:
        rule = message_of(problem).partition(". Correct that row")[0]
        return rule[0].lower() + rule[1:]
    except AdaptiveBenchError:
        pass  # it is blamed already, with its line
    return ""


def _check_choices(harness: HarnessTask, right: Any, choices: Sequence[Any], where: str) -> None:
    by_itself = isinstance(right, str) and callable(harness.config.process_results)  # it may look the text up
    texts = list(map(str, choices))
    if not (by_itself or _is_among(right, choices)) or not all(text.strip() for text in texts):
        raise EnvironmentProblem(
            f"Every document has choices and the right one, by its number from 0 to below {len(choices)} or its "
            f"text, but {where} has {one_line(repr(right), 60)} for {one_line(repr(list(choices)), 100)}. Correct that "
            f"row of the data, or what the task makes of it."
        )
    if len(set(texts)) == 1:
        raise EnvironmentProblem(
            f"A document has two or more choices that differ, but {where} has {one_line(repr(texts), 100)}, of which "
            f"any is right. Correct that row of the data, or what the task makes of it."
        )


def _is_among(right: Any, choices: Sequence[Any]) -> bool:
    """Whether lm-eval finds the right answer, or each of several, among the choices; a negative number it would count
    from the end.
    """
    if isinstance(right, list):
        return bool(right) and all(_is_among(one, choices) for one in right)
    return right in choices if isinstance(right, str) else right in range(len(choices))


def _missing(harness: HarnessTask, document: Any) -> Iterator[str]:
    """Fields without a value whose place in the question, the answer or the choices a reader would see `None` in."""
    if not isinstance(document, dict):
        return
    for field in (key for key, value in document.items() if value is None):
        marked = {**document, field: _MARK}
        asked = [harness.doc_to_text, harness.doc_to_target]
        asked += [harness.doc_to_choice] if harness.OUTPUT_TYPE == "multiple_choice" else []
        texts = [(str(ask(document)), str(ask(marked))) for ask in asked]
        # Where a template leaves out what is missing (`{% if hint %}`), the two texts differ by more than the mark.
        if any(_MARK in text and text.replace(_MARK, "None") == without for without, text in texts):
            yield field


def _fields(document: Any) -> str:
    if not isinstance(document, dict):
        return type(document).__name__
    return one_line(", ".join(f"{key} {value!r:.40}" for key, value in document.items()), 300)
