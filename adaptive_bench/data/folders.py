"""Finds a data set of the hub in a folder of local files, by one rule.

The data set `owner/name` is the first existing folder of `owner/name`, `name` and, if it has one, its short name. Its
configuration `c` is looked for as `name/c` and `name_c` before `name` itself: the plain folder stands for the
configuration that everybody uses, or holds all configurations in rows with a field `subject`. In the folder every split
is one file, `<split>.jsonl` or `<split>.jsonl.gz`, with the fields of the hub. A folder without such files is read as a
copy of the hub's repository.
"""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_bench.config import DATA_VARIABLE
from adaptive_bench.errors import EnvironmentProblem


def read_lines(path: Path, fields: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Read all rows of a file.

    Args:
        path: A `.jsonl` or `.jsonl.gz` file.
        fields: Fields that every row must have; by default those of the first row.

    Raises:
        EnvironmentProblem: The file cannot be read, is cut off or is not UTF-8, or a line is not an object with the
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
                # Windows editors begin a UTF-8 file with a byte order mark, which JSON does not allow.
                yield number, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
    except (OSError, EOFError, zlib.error) as error:
        raise EnvironmentProblem(
            f"The data file {path} cannot be read after line {number}: {error}. It may be cut off; fetch it again."
        ) from error


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode())
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


SUBJECT = "subject"
_SUFFIXES = (".jsonl", ".jsonl.gz")
# Configurations that are read from the plain folder of a data set.
_PLAIN = (None, "default", "main", "all", "plain_text", "v1.11", "winogrande_xl")
_SHORT_NAMES = {"lambada_openai": "lambada", "mmlu_no_train": "mmlu"}


class MissingData(EnvironmentProblem):
    """A folder of local data lacks a data set or a split. Callers that can do without the data catch this."""


class Place(NamedTuple):
    """The place of a data set in a folder of local data.

    Attributes:
        folder: The folder with its files.
        subject: Only rows with this `subject` belong to the data set; `None` for all rows.
    """

    folder: Path
    subject: str | None = None

    def split_file(self, split: str) -> Path | None:
        """Return the file of a split, or `None`."""
        files = (self.folder / f"{split}{suffix}" for suffix in _SUFFIXES)
        return next((file for file in files if file.is_file()), None)

    @property
    def splits(self) -> list[str]:
        """Names of the splits that have a file; empty for a copy of the hub's repository."""
        files = (file for suffix in _SUFFIXES for file in self.folder.glob(f"*{suffix}"))
        return sorted({file.name.partition(".jsonl")[0] for file in files})


def folder_names(hub_id: str, configuration: str | None = None, *, exact: bool = False) -> list[str]:
    """Return the folders in which a data set is looked for, the first choice first."""
    return list(dict.fromkeys(name for name, _ in _candidates(hub_id, configuration, exact)))


def find_place(data_dir: Path, hub_id: str, configuration: str | None = None, *, exact: bool = False) -> Place:
    """Find the folder of a data set.

    Args:
        exact: Accept only `owner/name`, since another data set has the same `name`.

    Raises:
        MissingData: There is no such folder.
    """
    for name, plain in _candidates(hub_id, configuration, exact):
        place = Place((data_dir / name).resolve())
        if place.folder.is_dir():
            whole = not plain or configuration in _PLAIN or not place.splits
            return place if whole else place._replace(subject=configuration)
    what = hub_id if configuration is None else f"{hub_id} ({configuration})"
    names = folder_names(hub_id, configuration, exact=exact)
    raise MissingData(
        f"The data set {what} cannot be read: it must be a folder of {str(data_dir)!r} called {' or '.join(names)}, "
        f"but there is none. Set --data-dir or {DATA_VARIABLE} to a folder with {names[-1]}/<split>.jsonl, or leave "
        f"both out to read from the Hugging Face hub."
    )


def _candidates(hub_id: str, configuration: str | None, exact: bool) -> Iterator[tuple[str, bool]]:
    """Give the names of candidate folders, and whether each is the plain one (without the configuration)."""
    name = hub_id.rpartition("/")[2]
    bases = [hub_id] if exact else [hub_id, name, _SHORT_NAMES.get(name, name)]
    for base in bases if configuration is not None else ():
        yield f"{base}/{configuration}", False
        yield f"{base}_{str(configuration).replace('-', '_')}", False
    yield from ((base, True) for base in bases)
