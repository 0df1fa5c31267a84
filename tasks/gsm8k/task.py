"""GSM8K in the GateSkip paper's template: zero-shot, reasoning first, then `#### answer`.

The human solutions are the reasoning; their calculator marks (`<<48/2=24>>`) are removed, because a model is not meant
to learn to write them. A tenth of the training split is kept for calibration; the test split is only evaluated.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from datasets import DatasetDict

from adaptive_bench.data import Row, Source, draw, harness_splits, read_rows
from adaptive_bench.task import Example, ExampleRequest, Task

SOURCE = Source("openai/gsm8k", folder="gsm8k", configuration="main", fields=("question", "answer"))
PROMPT = "Question: {question}\nAnswer:"
_CALCULATOR_MARK = re.compile(r"<<[^<>]*>>")


def harness_docs(data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents for lm-eval with a field `target`; it also passes the task's metadata, which is not needed."""
    return harness_splits({split: map(_document, read_rows(SOURCE, split, data_dir)) for split in ("train", "test")})


def training(request: ExampleRequest) -> list[Example]:
    """Question and worked solution; the answer is a number."""
    rows = draw(read_rows(SOURCE, "train", request.data_dir), lambda row: row["question"], request)
    return [Example(PROMPT.format(question=row["question"]), f" {_target(row)}") for row in rows]


def _document(row: Row) -> dict[str, str]:
    return {"question": row["question"], "target": _target(row)}


def _target(row: Row) -> str:
    reasoning, _, answer = _CALCULATOR_MARK.sub("", row["answer"]).rpartition("####")
    return f"{reasoning.strip()}\n#### {answer.strip()}"


GSM8K = Task(
    name="gsm8k",
    description="Grade-school word problems, zero-shot with reasoning; test split",
    kind="generative",
    folder=Path(__file__).parent,
    metrics=("exact_match,strict-match", "exact_match,flexible-extract"),
    chance=0.0,
    levels=(0.0, 0.05, 0.1, 0.15, 0.2, 0.25),
    training=training,
    data_folders=(SOURCE.folder,),
)
