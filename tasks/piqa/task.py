"""PIQA in the GateSkip paper's template: two options in the question, the answer is a letter.

The labels of the test split are secret, so evaluation is on the validation split. The log-likelihood form is lm-eval's
own task `piqa`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_bench.data import Row, Source, harness_splits, read_several

from ..template import document, generative, right_one, validation, with_options

if TYPE_CHECKING:
    from datasets import DatasetDict

SOURCE = Source("baber/piqa", fields=("goal", "sol1", "sol2", "label"), form=lambda row: _document(row))
LETTERS = "AB"


def harness_docs(data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents for lm-eval, which also passes the task's metadata (not needed). Worked examples have no reasoning."""
    test, train = read_several([(SOURCE, "validation"), (SOURCE, "train")], data_dir)
    splits = {"test": test, "shown": train, "validation": validation(train, "goal")}
    return harness_splits({split: map(_document, rows) for split, rows in splits.items()}, SOURCE)


def _document(row: Row) -> dict[str, Any]:
    return document(with_options(row["goal"], (row["sol1"], row["sol2"])), right_one(LETTERS, row["label"]), LETTERS)


PIQA_GEN = generative(
    "piqa_gen",
    description="PIQA written in the paper's template, zero-shot; validation split",
    folder=Path(__file__).parent,
    chance=0.5,
    training=None,
    validation_split="validation",
    data_folders=SOURCE.folders,
    source=str(SOURCE),
    licence="AFL-3.0",
)
