"""Whether a plugin's task keeps apart what it trains, calibrates and is tested on, and asks the same each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.api.task import Task as HarnessTask

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.data.overlap import RUN, Standing, words_of
from adaptive_bench.errors import PluginFault, one_line
from adaptive_bench.evaluation.drawn import drawn
from adaptive_bench.evaluation.lookup import find_task, load_anew, load_task
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.progress import SilentReporter
from adaptive_bench.runs.checks.findings import Findings
from adaptive_bench.runs.planning.training_text import draw_training
from adaptive_bench.task import Example, ExampleRequest, Task


def check_apart(task: Task, config: RunConfig, examples: Sequence[Example], findings: Findings) -> None:
    """Look for some training examples among the tested questions and among the calibration text; a few in the latter
    are noted, as a small world of questions repeats itself. Those among the tested ones `check_overlap` counts.

    Args:
        examples: Of its training.

    Raises:
        PluginFault: More than half of them are there.
    """
    if not registry.is_foreign_task(task.name):
        return
    request = ExampleRequest("calibration", len(examples), config.seeds[0], config.data_dir, config.train.max_length)
    with quiet():
        harness = load_task(task, config.data_dir, config.evaluation.num_fewshot)
        tested = {_asked(harness, document) for document in harness.eval_docs}
    calibrated = {(one.prompt, one.completion) for one in task.examples(request)}
    places: tuple[tuple[str, Callable[[Example], bool]], ...] = (
        ("questions that it is tested on", lambda one: (one.prompt.strip() or one.completion.strip()) in tested),
        ("in its calibration text", lambda one: (one.prompt, one.completion) in calibrated),
    )
    for where, is_there in places:
        found = [one for one in examples if is_there(one)]
        if not found:
            continue
        said = f"{len(found)} of {len(examples)} training examples of {task.name!r} that were looked at are {where}"
        if len(found) > len(examples) / 2:
            raise PluginFault(
                f"A task trains on other items than it calibrates and is tested on, but {said} (the first: "
                f"{one_line(found[0].prompt or found[0].completion, 60)!r}). Correct the plugin: draw() and held_out() "
                f"of adaptive_bench.data keep them apart."
            )
        if where == places[-1][0]:
            findings.note(f"{said}.")


def check_overlap(config: RunConfig, findings: Findings) -> None:
    """Note for each task how many of the documents that are asked stand in the training text of a seed, by the rule of
    `data.overlap`.
    """
    if not config.train.steps:
        return
    asked: dict[str, Standing] = {}
    with quiet():
        for task in map(find_task, config.tasks):
            harness = load_task(task, config.data_dir, config.evaluation.num_fewshot)
            every: Any = harness.eval_docs
            numbers = drawn(task, len(every), config.evaluation.limit)
            asked[task.name] = Standing([_asked(harness, every[number]) for number in numbers])
    seen: set[int] = set()  # hashes: seeds draw many of the same examples
    for seed in config.seeds:
        for one in draw_training(config, seed, SilentReporter()):
            if (known := hash(one)) not in seen:
                seen.add(known)
                words = words_of(one.prompt + one.completion)
                for standing in asked.values():
                    standing.look(one.prompt.strip() or one.completion, words)
    for name, standing in asked.items():
        if found := standing.found:
            count = len(standing)
            findings.note(
                f"{found} of {count} test documents of {name} ({found / count:.1%}) stand in the training text, by "
                f"{RUN} words in a row (docs/data.md): what they score may be remembered."
            )


def check_same(task: Task, config: RunConfig, documents: Sequence[Any], numbers: Sequence[int]) -> None:
    """Methods are compared on the same documents, so code that makes them makes the same ones each time.

    Args:
        documents: As they were read, all of them.
        numbers: Which of them are asked.

    Raises:
        PluginFault: Read again they are others.
    """
    if not registry.is_foreign_task(task.name):
        return
    with quiet():
        again = list(load_anew(task, config.data_dir).eval_docs)
    for number in (one for one in numbers if one < len(again)):
        one, other = (str(each[number]) for each in (documents, again))
        if one != other:
            raise PluginFault(
                f"A task gives the same documents each time it is asked, but document {number + 1} of {task.name!r} "
                f"was {one_line(one, 60)} and then {one_line(other, 60)}. Correct the plugin: give its draws a seed."
            )
    if len(again) != len(documents):
        raise PluginFault(
            f"A task gives the same documents each time it is asked, but of {task.name!r} there were {len(documents)} "
            f"and then {len(again)}. Correct the plugin."
        )


def check_validation(task: Task, config: RunConfig, findings: Findings) -> None:
    """Settings are chosen on validation documents, so these are not the tested ones; a few are noted.

    Raises:
        PluginFault: More than half of them are.
    """
    if task.validation_split is None or not registry.is_foreign_task(task.name):
        return
    with quiet():
        tested, chosen = (
            list(map(str, load_task(task, config.data_dir, None, split).eval_docs)) for split in ("test", "validation")
        )
    same = sum(map(set(tested).__contains__, chosen))
    if not same:
        return
    said = f"{same} of {len(chosen)} documents of the validation_split {task.validation_split!r} of {task.name!r}"
    if same > len(chosen) / 2:
        raise PluginFault(
            f"Settings are chosen on other documents than those that are tested, but {said} are tested. Correct the "
            f"plugin: keep them apart, or give validation_split=None."
        )
    findings.note(f"{said} are tested as well.")


def _asked(harness: HarnessTask, document: Any) -> str:
    text = harness.doc_to_text(document)
    if isinstance(text, int):  # the right one of several questions, all with one end
        return f"{harness.doc_to_choice(document)[text]} {harness.doc_to_target(document)}"
    return (text.strip() if isinstance(text, str) else "") or str(harness.doc_to_target(document)).strip()
