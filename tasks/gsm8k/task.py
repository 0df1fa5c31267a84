"""GSM8K in the GateSkip paper's template: zero-shot, reasoning first, then `#### answer`.

`gsm8k` trains on the solutions written by people, without their calculator marks (`<<48/2=24>>`), which a model is not
meant to learn to write. `gsm8k_nemotron` is the same task, trained on the traces of a 70B model that the paper names.
A tenth of the training split is held out; the test split is only evaluated.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_bench.data import Row, Source, harness_splits, read_rows, read_several
from adaptive_bench.task import Example, ExampleRequest

from ..answers import INVALID, number_after_mark
from ..template import TRACES_FIELD, examples, generative, read_traces, target, validation

if TYPE_CHECKING:
    from datasets import DatasetDict

SOURCE = Source(
    "openai/gsm8k",
    configuration="main",
    fields=("question", "answer"),
    form=lambda row: (row["question"].strip(), document(row), _answered(row)),
)
TRACES = Source(
    "multi-domain-reasoning/gsm8k",
    fields=("question", "answer", TRACES_FIELD),
    exact=True,
    may_be_empty=(TRACES_FIELD,),
)
_CALCULATOR_MARK = re.compile(r"<<[^<>]*>>")


def harness_docs(data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents with a field `target` for lm-eval, which also passes the task's metadata (not needed)."""
    train, test = read_several([(SOURCE, "train"), (SOURCE, "test")], data_dir)
    rows = {"train": train, "test": test, "validation": validation(train, "question")}
    return harness_splits({split: map(document, some) for split, some in rows.items()}, SOURCE)


def training(request: ExampleRequest) -> list[Example]:
    """Examples of a question and its worked solution; the answer is a number."""
    return examples(request, read_rows(SOURCE, "train", request.data_dir), "question", document)


def traced(request: ExampleRequest) -> list[Example]:
    """Examples of a question and the 70B model's reasoning, with the data set's own answer."""
    rows = read_traces(TRACES, request.data_dir)
    return examples(request, (document(row, row["reasoning"]) for row in rows), "question")


def _answered(row: Row) -> Row:
    """The row, if it ends in an answer; raises a ValueError otherwise."""
    if number_after_mark(row["answer"]) == INVALID:
        raise ValueError("an answer ends in a number behind ####")
    return row


def document(row: Row, reasoning: str | None = None) -> dict[str, Any]:
    """Question and target of a row; `reasoning`, if given, replaces the row's own."""
    written, _, answer = _CALCULATOR_MARK.sub("", row["answer"]).rpartition("####")
    return {
        "question": row["question"],
        "target": target(written if reasoning is None else reasoning, answer.strip()),
    }


GSM8K = generative(
    "gsm8k",
    description="Grade-school word problems, zero-shot with reasoning; test split",
    folder=Path(__file__).parent,
    chance=0.0,
    training=training,
    validation_split="validation",
    data_folders=SOURCE.folders,
    source=str(SOURCE),
    licence="MIT",
    text_source=f"solutions written by people ({SOURCE}); a stand-in for the paper's traces of a 70B model",
)
GSM8K_NEMOTRON = replace(
    GSM8K,
    name="gsm8k_nemotron",
    harness_name="gsm8k",
    description="gsm8k, trained on the paper's reasoning traces",
    training=traced,
    data_folders=(*SOURCE.folders, *TRACES.folders),
    text_source=f"reasoning of Nemotron-70B ({TRACES}, field {TRACES_FIELD})",
)
