"""Long chains of thought: four GSM8K problems in a question, solved one after the other; the answer is their sum.

An answer is right only if all four results are, so that an error anywhere in hundreds of written tokens shows. Problems
are taken in the order of the file, four in a row; fewer than four left over at the end are dropped. Worked answers are
the solutions that people wrote, one after the other, each with its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_bench.data import Row, harness_splits, read_rows, read_several
from adaptive_bench.task import Example, ExampleRequest

from ..answers import last_number, number_after_mark
from ..gsm8k.task import SOURCE
from ..gsm8k.task import document as document_of_one
from ..template import examples, generative, target, validation

if TYPE_CHECKING:
    from datasets import DatasetDict

LINKS = 4  # problems in a question
_ASKED = "Solve these {count} problems one after the other, step by step. The answer is the sum of their results."


def chains(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Documents that each join `LINKS` rows, in their order."""
    some = [document_of_one(row) for row in rows]
    return [_chain(some[start : start + LINKS]) for start in range(0, len(some) - LINKS + 1, LINKS)]


def harness_docs(data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents for lm-eval, which also passes the task's metadata (not needed)."""
    train, test = map(chains, read_several([(SOURCE, "train"), (SOURCE, "test")], data_dir))
    found = {"train": train, "test": test}
    found["validation"] = validation(found["train"], "question")
    return harness_splits(found, SOURCE)


def training(request: ExampleRequest) -> list[Example]:
    """Examples of a question with its worked answer."""
    return examples(request, chains(read_rows(SOURCE, "train", request.data_dir)), "question")


def _chain(links: Sequence[dict[str, Any]]) -> dict[str, Any]:
    results = [number_after_mark(link["target"]) for link in links]
    solutions = [link["target"].rpartition("\n####")[0].strip() for link in links]
    worked = [
        f"{number}. {solution}\nResult {number}: {result}"
        for number, (solution, result) in enumerate(zip(solutions, results, strict=True), 1)
    ]
    total = last_number(f"{sum(map(Decimal, results), Decimal(0)):f}")
    worked.append(f"The sum is {' + '.join(results)} = {total}.")
    asked = [f"{number}. {link['question'].strip()}" for number, link in enumerate(links, 1)]
    question = "\n".join([_ASKED.format(count=len(links)), *asked])
    return {"question": question, "target": target("\n".join(worked), total)}


GSM8K_LONG = generative(
    "gsm8k_long",
    description=f"{LINKS} grade-school word problems in a question, a long chain of thought; test split",
    folder=Path(__file__).parent,
    chance=0.0,
    training=training,
    validation_split="validation",
    data_folders=SOURCE.folders,
    source=str(SOURCE),
    licence="MIT",
    text_source=f"solutions written by people ({SOURCE}), {LINKS} in a row",
)
