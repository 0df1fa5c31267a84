"""Reads files of JSON lines, plain or gzipped. What is wrong with one is told with the number of the line."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem


def read_lines(path: Path, fields: Sequence[str] = ()) -> list[dict[str, Any]]:
    """All rows of a file.

    Args:
        path: A `.jsonl` or `.jsonl.gz` file.
        fields: Fields every row must have; without any, those of the first row.

    Raises:
        EnvironmentProblem: The file cannot be read, is cut off, is not UTF-8, or a line is not an object with the
            fields. The message names the line.
    """
    rows: list[dict[str, Any]] = []
    for number, line in _numbered_lines(path):
        if not line.strip():
            continue
        row = _parse(path, number, line)
        wanted = fields or (rows[0] if rows else row)
        if missing := [field for field in wanted if field not in row]:
            raise EnvironmentProblem(
                f"Every row of {path} has the fields {', '.join(wanted)}, but line {number} lacks {', '.join(missing)} "
                f"(found: {', '.join(row)}). Use the fields of the data set on the Hugging Face hub."
            )
        rows.append(row)
    if not rows:
        raise EnvironmentProblem(f"A data file holds one JSON object a line, but {path} is empty. Fetch it again.")
    return rows


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                # Editors of Windows begin a file in UTF-8 with a mark that JSON does not know.
                yield number, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
    except (OSError, EOFError, zlib.error) as error:
        raise EnvironmentProblem(
            f"The data file {path} cannot be read after line {number}: {error}. It may be cut off; fetch it again."
        ) from error


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        # Some editors put a byte order mark in front of the first line.
        row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        raise EnvironmentProblem(
            f"A data file is UTF-8, but {path} cannot be read in line {number}: byte {error.start + 1} of it is "
            f"0x{line[error.start]:02x}. Convert the file to UTF-8."
        ) from error
    except json.JSONDecodeError as error:
        raise EnvironmentProblem(
            f"A data file holds one JSON object a line, but {path} cannot be read in line {number}: {error.msg} at "
            f"character {error.pos + 1}. It may be cut off; fetch it again."
        ) from error
    if not isinstance(row, dict):
        raise EnvironmentProblem(
            f"A data file holds one JSON object a line, but line {number} of {path} is of the kind "
            f"{type(row).__name__}. Use the format of the data set on the Hugging Face hub."
        )
    return row
