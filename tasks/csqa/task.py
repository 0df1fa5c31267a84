"""CommonsenseQA in the GateSkip paper's template: the options stand in the question, the answer is a letter.

The labels of the public test split are secret, so evaluation is on the validation split (the paper says "test", but
only these 1,221 questions have answers). The reasoning to train on is CoS-E's, written by people and joined by id; some
of it is weak. The paper trained on explanations of a 70B model, which are not part of these data sets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets import DatasetDict

from adaptive_bench.data import Row, Source, draw, harness_splits, read_rows
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.task import Example, ExampleRequest, Task

QUESTIONS = Source("tau/commonsense_qa", folder="commonsense_qa", fields=("id", "question", "choices", "answerKey"))
EXPLANATIONS = Source(
    "Salesforce/cos_e", folder="cos_e", configuration="v1.11", fields=("id", "abstractive_explanation")
)
PROMPT = "Question: {question}\nAnswer:"
DIRECT_PROMPT = PROMPT + "\n####"


def harness_docs(data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents of the generative form for lm-eval; it also passes the task's metadata, which is not needed."""
    validation = [_question(row) for row in read_rows(QUESTIONS, "validation", data_dir)]
    for document in validation:
        document["target"] = (
            f"#### {document['answer']}"  # only worked examples, from the training split, show reasoning
        )
    return harness_splits({"train": _explained(data_dir), "validation": validation})


def direct_docs(data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents of the log-likelihood form for lm-eval. They need no explanations."""
    splits = {split: read_rows(QUESTIONS, split, data_dir) for split in ("train", "validation")}
    return harness_splits({split: map(_question, rows) for split, rows in splits.items()})


def reasoned(request: ExampleRequest) -> list[Example]:
    """Question, explanation and letter."""
    return _examples(request, _explained(request.data_dir), PROMPT, "target")


def direct(request: ExampleRequest) -> list[Example]:
    """Question and letter at once, in the same template with the reasoning left out."""
    rows = read_rows(QUESTIONS, "train", request.data_dir)
    return _examples(request, [_question(row) for row in rows], DIRECT_PROMPT, "answer")


def _examples(request: ExampleRequest, rows: list[dict[str, Any]], prompt: str, completion: str) -> list[Example]:
    drawn = draw(rows, lambda row: row["id"], request)
    return [Example(prompt.format(question=row["question"]), f" {row[completion]}") for row in drawn]


def _explained(data_dir: Path | str | None) -> list[dict[str, Any]]:
    explanations = {row["id"]: row["abstractive_explanation"] for row in read_rows(EXPLANATIONS, "train", data_dir)}
    documents = [_question(row) for row in read_rows(QUESTIONS, "train", data_dir)]
    if missing := [document["id"] for document in documents if document["id"] not in explanations]:
        raise EnvironmentProblem(
            f"Every question of {QUESTIONS.folder} needs an explanation of the same id in {EXPLANATIONS.folder}, but "
            f"{len(missing)} have none (first: {missing[0]}). Use matching versions of the two."
        )
    for document in documents:
        reasoning = " ".join(explanations[document["id"]].split())
        document["target"] = f"{reasoning}\n#### {document['answer']}"
    return documents


def _question(row: Row) -> dict[str, Any]:
    options = zip(row["choices"]["label"], row["choices"]["text"], strict=True)
    lines = [row["question"].strip(), *(f"{label}. {text}" for label, text in options)]
    return {"id": row["id"], "question": "\n".join(lines), "answer": row["answerKey"]}


def _task(
    name: str, kind: Any, how: str, metrics: tuple[str, ...], levels: tuple[float, ...], training: Callable[..., Any]
) -> Task:
    return Task(
        name=name,
        description=f"CommonsenseQA, {how}; validation split, because the test labels are not public",
        kind=kind,
        folder=Path(__file__).parent,
        metrics=metrics,
        chance=0.2,
        levels=levels,
        training=training,
        data_folders=(QUESTIONS.folder, EXPLANATIONS.folder),
    )


CSQA = _task(
    "csqa",
    "generative",
    "zero-shot with reasoning",
    ("exact_match,strict-match", "exact_match,flexible-extract"),
    (0.0, 0.05, 0.1, 0.15, 0.2, 0.25),
    reasoned,
)
CSQA_LL = _task(
    "csqa_ll", "loglikelihood", "by the likeliest option letter", ("acc,none",), (0.0, 0.15, 0.3, 0.45, 0.6), direct
)
