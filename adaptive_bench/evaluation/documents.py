"""Chooses the documents of a task that are asked, and checks that each has a question, an answer and choices."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask
from lm_eval.api.task import Task as HarnessTask

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, blame, message_of, one_line
from adaptive_bench.task import Task

DRAW_SEED = 1234  # independent of the training's seed, so that every method and training is asked the same documents


def drawn(task: Task, count: int, limit: int | None) -> Sequence[int]:
    """Numbers of the `limit` documents chosen from `count`, ascending. A lower limit chooses a subset of them. If the
    task says that documents are `mixed`, in random order already, the first ones are taken.
    """
    if limit is None or limit >= count or task.mixed:
        return range(count)[:limit]
    numbers = list(range(count))
    # All are shuffled whatever the limit, so that lower limits take prefixes of one order.
    random.Random(DRAW_SEED).shuffle(numbers)
    return sorted(numbers[:limit])


def ask_only(harness: HarnessTask, numbers: Sequence[int]) -> None:
    """Restrict a task to these documents, which keep their numbers; lm-eval's `samples` would renumber them."""

    def chosen(rank: int = 0, world_size: int = 1, **_: Any) -> Iterator[tuple[int, Any]]:
        documents: Any = harness.eval_docs
        # Documents that a task's own code filters may come as an iterator.
        documents = documents if hasattr(documents, "__getitem__") else list(documents)
        return islice(((number, documents[number]) for number in numbers), rank, None, world_size)

    harness.doc_iterator = chosen


def leave_out(harness: HarnessTask, fits: Callable[[Instance], bool]) -> list[int]:
    """Make a task leave out documents with a request that does not fit; the others keep their worked examples. Returns
    the numbers of those left out, a list that is filled once the task has built its requests.
    """
    left: list[int] = []
    # Requests exist only once lm-eval has built them, inside `evaluate`: so its method is wrapped.
    build = harness.build_all_requests

    def built(**how: Any) -> None:
        build(**how)
        left[:] = sorted({int(request.doc_id or 0) for request in harness.instances if not fits(request)})
        kept = [request for request in harness.instances if request.doc_id not in left]
        if not kept:
            raise UsageError(
                f"Documents longer than the model's context are left out, but of {harness.config.task!r} all "
                f"{len(left)} are. Lower --num-fewshot or choose a model with a longer context."
            )
        # lm-eval goes through the documents again to score them, and would look for the requests of those left out.
        harness._instances = kept
        ask_only(harness, list(dict.fromkeys(int(request.doc_id or 0) for request in kept)))

    harness.build_all_requests = built
    return left


def shown_split(harness: HarnessTask) -> str | None:
    """The split from which worked examples are drawn; `None` if the task has its own list of examples."""
    config, shown = harness.config, harness.config.fewshot_config
    if shown is not None and shown.split is not None:
        return str(shown.split)
    if shown is not None and shown.samples is not None:
        return None
    return config.training_split or config.validation_split or config.test_split


def keep_apart(loaded: HarnessTask, shown: str | None) -> None:
    """Make lm-eval leave the asked document out of its own worked examples if they come from the tested split.

    By itself lm-eval does so only if `fewshot_split` is the `test_split`. A task that names only the tested split has
    no `fewshot_split`, so its examples would come from the tested documents, including the asked one.

    Args:
        loaded: A copy of the task, whose parts may be shared with others.
        shown: Result of `shown_split` before another split than the test split was selected.
    """
    tested = loaded.config.test_split or loaded.config.validation_split
    if not isinstance(loaded, ConfigurableTask) or shown is None or shown != tested:
        return
    # lm-eval compares `fewshot_split` with `test_split`: both are set to the split that is tested.
    loaded.fewshot_cfg = replace(loaded.fewshot_cfg, split=tested)
    loaded._config = replace(loaded.config, test_split=tested, fewshot_config=loaded.fewshot_cfg)
    if loaded.fewshot_cfg.process_docs is None:  # if the task's code draws documents, draw them once for both uses
        loaded.sampler = copy(loaded.sampler).replace_df(list(loaded.eval_docs))


def are_of_tested(harness: HarnessTask) -> bool:
    """Whether the worked examples of a loaded task are tested documents."""
    return isinstance(harness, ConfigurableTask) and harness.fewshot_cfg.split == harness.config.test_split is not None


def answer_of(harness: HarnessTask, document: Any, where: str) -> tuple[str, ...]:
    """The texts of a document's answer: the target, or every choice. A document (`where`: `document 3 of 200 of
    'mine'`) without question, answer or choices is an `EnvironmentProblem`; an error in the task's own code a
    `PluginFault`.
    """

    def refused(fault: str) -> EnvironmentProblem:
        fields = document.items() if isinstance(document, dict) else [(type(document).__name__, "")]
        got = one_line(", ".join(f"{key} {value!r:.40}" for key, value in fields), 300)
        return EnvironmentProblem(
            f"Every document has a question and an answer, or choices and the right one, but {where} {fault} (fields: "
            f"{got}). Correct that row of the data, or what the task makes of it."
        )

    chooses = harness.OUTPUT_TYPE == "multiple_choice"
    try:
        prompt, target = harness.doc_to_text(document), harness.doc_to_target(document)
        choices = list(harness.doc_to_choice(document)) if chooses else []
    except AdaptiveBenchError:
        raise
    except Exception as error:  # templates and a task's own code may raise anything
        # If the error comes from a plugin's code, this raises a PluginFault.
        blame(error, f"{where[0].upper()}{where[1:]} cannot be put into the form of a question")
        said = f"{type(error).__name__}: {message_of(error)[:200]}"
        raise refused(f"cannot be put into its form: {said}") from error
    if chooses:
        # With several inputs (Winogrande) choices are part of the question: `doc_to_text` is the right one's number.
        right = prompt if getattr(harness, "multiple_input", 0) else target
        by_code = isinstance(right, str) and callable(harness.config.process_results)  # which may look the text up
        if not (by_code or _is_among(right, choices)) or not all(str(text).strip() for text in choices):
            raise refused(f"has {one_line(repr(right), 60)} for {one_line(repr(choices), 100)}")
        return tuple(map(str, choices))
    if target is None or not str(target).strip():
        raise refused("has no answer")
    if isinstance(prompt, str) and not prompt.strip() and not harness.OUTPUT_TYPE.endswith("rolling"):
        raise refused("has an empty question")
    return tuple(map(str, target)) if isinstance(target, list) else (str(target),)


def _is_among(right: Any, choices: Sequence[Any]) -> bool:
    """Whether the right answer, or each of several, is among the choices. Negative numbers do not count, although
    lm-eval would count them from the end.
    """
    if isinstance(right, list):
        return bool(right) and all(_is_among(one, choices) for one in right)
    return right in choices if isinstance(right, str) else right in range(len(choices))
