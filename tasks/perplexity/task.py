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
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_bench.data import (
    Row,
    Source,
    data_root,
    draw,
    harness_splits,
    held_out,
    read_lines,
    read_rows,
    stream_rows,
)
from adaptive_bench.errors import EnvironmentProblem, UsageError, one_line
from adaptive_bench.task import Example, ExampleRequest, OpenTask, Task

if TYPE_CHECKING:
    from datasets import DatasetDict

_BYTES_PER_TOKEN = 5  # more bytes of English than a token of any current tokenizer holds on average
# How many documents, from a split's beginning, are searched for held-out ones.
_LOOKED_THROUGH = 20_000
_SUFFIXES = (".txt", ".jsonl", ".gz")
_TESTED = ("test", "validation")
# Corpora of which a named configuration on the hub is used.
_CONFIGURATIONS = {"HuggingFaceFW/fineweb": "sample-10BT"}


def harness_docs(argument: str, data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents for lm-eval, which also passes the task's metadata (not needed)."""
    splits = dict(zip(("test", "validation"), _asked(argument, data_dir), strict=True))
    return harness_splits({split: [{"text": row["text"]} for row in rows] for split, rows in splits.items() if rows})


def _asked(argument: str, data_dir: str | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Documents to measure, and others to make choices on. All documents of a file are measured. Of a data set these
    are its split for testing, and choices are made on held-out documents of `train`; without such a split the held-out
    documents are measured, and none are left for choices.
    """
    if (path := local_path(argument)) is not None:
        return [row for file in text_files(path) for row in _file_rows(file)], []
    source, root = source_of(argument), data_root(data_dir)
    if root is None:
        return held_out(islice(stream_rows(source, "train"), _LOOKED_THROUGH), _key, "validation"), []
    splits = source.place(root).splits
    tested = next((split for split in _TESTED if split in splits), None)
    if tested is None:
        return held_out(read_rows(source, "train", root), _key, "validation"), []
    train = read_rows(source, "train", root) if "train" in splits else []
    return read_rows(source, tested, root), held_out(train[:_LOOKED_THROUGH], _key, "validation")


def corpus(argument: str, request: ExampleRequest) -> list[Example]:
    """As many first documents of the corpus as the request needs, in seeded order; all of their tokens are learned."""
    wanted = _BYTES_PER_TOKEN * request.count * request.length
    found, size = [], 0
    source, root = source_of(argument), data_root(request.data_dir)
    for row in stream_rows(source, "train") if root is None else read_rows(source, "train", root):
        if row["text"].strip() and held_out([row], _key, request.split):
            found.append(row)
            size += len(row["text"].encode())
        if size >= wanted:
            break
    return [Example("", row["text"]) for row in draw(found, _key, replace(request, count=len(found)))]


def _key(row: Any) -> str:
    return str(row["text"])


def source_of(name: str) -> Source:
    """The data set of this name, with documents in the field `text`."""
    return Source(
        name, fields=("text",), configuration=_CONFIGURATIONS.get(name), may_be_empty=("text",), form=_text_of
    )


def local_path(argument: str) -> Path | None:
    """The file or folder that an argument names; `None` for a data set. A folder of texts and a data set can have the
    same name: the way the argument is written decides, not what lies in the working directory.
    """
    path = Path(argument).expanduser()
    looks_like_one = path.is_absolute() or argument.startswith((".", "~")) or argument.endswith("/")
    return path if looks_like_one or path.suffix in _SUFFIXES or path.is_file() else None


def text_files(path: Path) -> list[Path]:
    """The text files at a path, sorted; at least one."""
    if path.is_file() and path.suffix not in _SUFFIXES:
        raise UsageError(
            f"A corpus is a .txt or .jsonl file or a folder of them, got the file {str(path)!r}. Rename it if it holds "
            f"plain text, or name another."
        )
    files = [path] if path.is_file() else sorted(file for kind in ("*.txt", "*.jsonl*") for file in path.rglob(kind))
    if not files:
        raise EnvironmentProblem(
            f"A corpus is a .txt or .jsonl file or a folder of them, but none is at {str(path)!r}. Check the path."
        )
    return files


def _file_rows(file: Path) -> list[dict[str, Any]]:
    if file.suffix != ".txt":
        rows = read_lines(file, ("text",))
        for number, row in enumerate(rows, 1):
            try:
                _text_of(row)
            except ValueError as error:
                raise EnvironmentProblem(f"In row {number} of {file} {error}. Correct that row.") from error
        return rows
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(
            f"A text file is UTF-8, but {file} cannot be read: {error}. Convert it, or name another."
        ) from error
    if not text.strip():
        raise EnvironmentProblem(f"A text file holds text, but {file} is empty. Name another.")
    return [{"text": text}]


def _text_of(row: Row) -> str:
    if not isinstance(row["text"], str):
        raise ValueError(f"the field 'text' holds a text, got {one_line(repr(row['text']), 60)}")
    return row["text"]


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
        data_folders=() if path is not None else source_of(argument).folders,
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
