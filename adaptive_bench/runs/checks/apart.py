"""How many of the documents that are asked stand in the training text."""

from __future__ import annotations

from typing import Any

from lm_eval.api.task import Task as HarnessTask

from adaptive_bench.config import RunConfig
from adaptive_bench.data.overlap import RUN, Standing, words_of
from adaptive_bench.evaluation.drawn import drawn
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.progress import SilentReporter
from adaptive_bench.runs.checks.findings import Findings
from adaptive_bench.runs.planning.training_text import draw_training


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


def _asked(harness: HarnessTask, document: Any) -> str:
    text = harness.doc_to_text(document)
    if isinstance(text, int):  # the right one of several questions, all with one end
        return f"{harness.doc_to_choice(document)[text]} {harness.doc_to_target(document)}"
    return (text.strip() if isinstance(text, str) else "") or str(harness.doc_to_target(document)).strip()
