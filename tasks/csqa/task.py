"""CommonsenseQA in the GateSkip paper's template: the options stand in the question, the answer is a letter.

The labels of the public test split are secret, so evaluation is on the validation split (the paper says "test", but
only these 1,221 questions have answers). `csqa` trains on the explanations of CoS-E, written by people and joined by
id; some are weak. `csqa_nemotron` is the same task, trained on the traces of a 70B model that the paper names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_bench.data import Row, Source, draw, harness_splits, read_rows, read_several
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.task import Example, ExampleRequest, Task

from ..template import (
    PROMPT,
    SHARED_FILES,
    TRACES_FIELD,
    document,
    examples,
    generative,
    read_traces,
    validation,
    with_options,
)

if TYPE_CHECKING:
    from datasets import DatasetDict

FIELDS = ("question", "choices", "answerKey")
QUESTIONS = Source("tau/commonsense_qa", fields=("id", *FIELDS), form=lambda row: (_document(row), _answered(row)))
EXPLANATIONS = Source(
    "Salesforce/cos_e",
    configuration="v1.11",
    fields=("id", "abstractive_explanation"),
    may_be_empty=("abstractive_explanation",),
    form=lambda row: (row["abstractive_explanation"] or "").split(),
)
TRACES = Source(
    "multi-domain-reasoning/commonsense_qa",
    fields=(*FIELDS, TRACES_FIELD),
    exact=True,
    may_be_empty=(TRACES_FIELD,),
    form=lambda row: _document(row),
)
DIRECT_PROMPT = PROMPT + "\n####"


def harness_docs(data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents of the generative form for lm-eval, which also passes the task's metadata (not needed).

    Only worked examples, from the training split, show reasoning.
    """
    test, train, explanations = read_several(
        [(QUESTIONS, "validation"), (QUESTIONS, "train"), (EXPLANATIONS, "train")], data_dir
    )
    return harness_splits(
        {
            "test": map(_document, test),
            "shown": map(_explained(train, explanations), train),
            "validation": map(_document, validation(train, "id")),
        },
        QUESTIONS,
    )


def direct_docs(data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents of the log-likelihood form, which need no explanations."""
    test, train = read_several([(QUESTIONS, "validation"), (QUESTIONS, "train")], data_dir)
    splits = {"test": test, "shown": train, "validation": validation(train, "id")}
    return harness_splits({split: map(_document, rows) for split, rows in splits.items()}, QUESTIONS)


def reasoned(request: ExampleRequest) -> list[Example]:
    """Examples of a question with its explanation and letter."""
    rows, explanations = read_several([(QUESTIONS, "train"), (EXPLANATIONS, "train")], request.data_dir)
    return examples(request, rows, "id", _explained(rows, explanations))


def traced(request: ExampleRequest) -> list[Example]:
    """Examples of a question with the 70B model's reasoning and the letter."""
    rows = read_traces(TRACES, request.data_dir)
    return examples(request, (_document(row, row["reasoning"]) for row in rows), "question")


def direct(request: ExampleRequest) -> list[Example]:
    """Examples of a question followed directly by its letter, in the same template without reasoning."""
    rows = map(_document, draw(read_rows(QUESTIONS, "train", request.data_dir), lambda row: str(row["id"]), request))
    return [Example(DIRECT_PROMPT.format(question=row["question"]), f" {row['answer']}") for row in rows]


def _explained(rows: Sequence[Row], found: Sequence[Row]) -> Callable[[Row], dict[str, Any]]:
    """The function that gives the document of a row, with its explanation."""
    explanations = {row["id"]: row["abstractive_explanation"] for row in found}
    if missing := [row["id"] for row in rows if row["id"] not in explanations]:
        raise EnvironmentProblem(
            f"Every question of {QUESTIONS} needs an explanation of the same id in {EXPLANATIONS}, but "
            f"{len(missing)} have none (first: {missing[0]}). Use matching versions of the two."
        )
    return lambda row: _document(row, " ".join(explanations[row["id"]].split()))


def _answered(row: Row) -> Row:
    """The row, if its answer is one of its options' letters; raises a ValueError otherwise."""
    if row["answerKey"] not in row["choices"]["label"]:
        raise ValueError(f"the answer is one of the options' letters, got {row['answerKey']!r}")
    return row


def _document(row: Row, reasoning: str = "") -> dict[str, Any]:
    labels, texts = row["choices"]["label"], row["choices"]["text"]
    if len(labels) != len(texts):
        raise ValueError(f"every option has a letter and a text, got {len(labels)} letters and {len(texts)} texts")
    about = document(with_options(row["question"], texts, labels), row["answerKey"], "".join(labels), reasoning)
    return about | {"id": row.get("id", "")}


CSQA = generative(
    "csqa",
    description="CommonsenseQA, zero-shot with reasoning; validation split, because the test labels are not public",
    folder=Path(__file__).parent,
    chance=0.2,
    training=reasoned,
    validation_split="validation",
    data_folders=(*QUESTIONS.folders, *EXPLANATIONS.folders),
    source=str(QUESTIONS),
    licence="MIT; CoS-E BSD-3-Clause",
    text_source=f"explanations written by people ({EXPLANATIONS}); a stand-in for the paper's traces of a 70B model",
)
CSQA_NEMOTRON = replace(
    CSQA,
    name="csqa_nemotron",
    harness_name="csqa",
    description="csqa, trained on the paper's reasoning traces",
    training=traced,
    data_folders=(*QUESTIONS.folders, *EXPLANATIONS.folders, *TRACES.folders),
    licence="MIT",
    text_source=f"reasoning of Nemotron-70B ({TRACES}, field {TRACES_FIELD})",
)
CSQA_LL = Task(
    name="csqa_ll",
    description="CommonsenseQA by the likeliest option letter; validation split, as csqa",
    kind="loglikelihood",
    folder=Path(__file__).parent,
    metrics=("acc,none",),
    chance=0.2,
    training=direct,
    validation_split="validation",
    data_folders=QUESTIONS.folders,
    source=str(QUESTIONS),
    licence="MIT",
    text_source=f"the right letter of each training question ({QUESTIONS})",
    other_files=SHARED_FILES,
)
