"""Bits per byte of any text: `perplexity:novels`, `perplexity:notes.txt`, `perplexity:HuggingFaceFW/fineweb`.

After the colon stands a text file (one document), a file of JSON lines or a data set with the field `text`, or a folder
of text files, which is written as a path: `./notes` or `notes/`. A data set is also a corpus to train on: a tenth of
its `train` split is held out, some of it to make choices on. If the data set has no split for testing, those documents
are the ones measured. FineWeb is streamed from the hub.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_bench.data import draw, harness_splits, held_out
from adaptive_bench.task import Example, ExampleRequest, OpenTask, Task

from .texts import chosen_on, folders, local_path, tested, text_files, trained_on

if TYPE_CHECKING:
    from datasets import DatasetDict

_BYTES_PER_TOKEN = 5  # more bytes of English than a token of any current tokenizer holds on average


def harness_docs(argument: str, data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents for lm-eval, which also passes the task's metadata (not needed)."""
    splits = {"test": tested(argument, data_dir), "validation": chosen_on(argument, data_dir)}
    return harness_splits({split: [{"text": row["text"]} for row in rows] for split, rows in splits.items() if rows})


def corpus(argument: str, request: ExampleRequest) -> list[Example]:
    """As many first documents of the corpus as the request needs, in seeded order; all of their tokens are learned."""
    wanted = _BYTES_PER_TOKEN * request.count * request.length
    found, size = [], 0
    for row in trained_on(argument, request.data_dir):
        if row["text"].strip() and held_out([row], _key, request.split):
            found.append(row)
            size += len(row["text"].encode())
        if size >= wanted:
            break
    return [Example("", row["text"]) for row in draw(found, _key, replace(request, count=len(found)))]


def _key(row: Any) -> str:
    return str(row["text"])


def make(argument: str) -> Task:
    """The perplexity task of one text or corpus."""
    path = local_path(argument)
    return Task(
        name=f"perplexity:{argument}",
        description=f"Bits per byte of {argument}",
        kind="loglikelihood",
        folder=Path(__file__).parent,
        metrics=("bits_per_byte,none", "byte_perplexity,none", "word_perplexity,none"),
        chance=math.nan,
        training=None if path is not None else partial(corpus, argument),
        data_folders=folders(argument),
        source=argument,
        text_source="" if path is not None else f"documents of {argument}, train split",
        validation_split=None if path is not None else "validation",
        other_files=() if path is None else tuple(text_files(path)),
        harness_name="perplexity",
        argument=argument,
    )


PERPLEXITY = OpenTask(
    "perplexity", "Bits per byte of a text file, a folder of them, or a data set with the field `text`", make
)
