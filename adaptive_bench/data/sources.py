"""Reads data sets by their name on the hub, from local files or the hub itself, and divides training splits by use.

In a folder of local data, the data set `owner/name` is the first existing folder of `owner/name`, `name` and, if it has
one, its short name. Its configuration `c` is looked for as `name/c` and `name_c` before `name` itself: the plain folder
stands for the configuration that everybody uses, or holds all configurations in rows with a field `subject`. In the
folder every split is one file, `<split>.jsonl` or `<split>.jsonl.gz`, with the fields of the hub. A folder without such
files is read as a copy of the hub's repository.

A tenth of the rows of a training split is held out, chosen by a hash of each row's key. Of these, seven in ten
calibrate thresholds and three in ten are validation documents for choosing settings; the other rows are trained on. The
choice does not depend on seed, order or machine, and no row has two uses.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from adaptive_bench.config import DATA_VARIABLE
from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of, one_line
from adaptive_bench.hub import Needed, hub_or_cache, raise_together
from adaptive_bench.store.keys import folder_digest
from adaptive_bench.task import ExampleRequest

if TYPE_CHECKING:
    import datasets


Use = Literal["train", "calibration", "validation"]
Row = Mapping[str, Any]
_SUBJECT = "subject"
_SUFFIXES = (".jsonl", ".jsonl.gz")
# Configurations that are read from the plain folder of a data set.
_PLAIN = (None, "default", "main", "all", "plain_text", "v1.11", "winogrande_xl")
_SHORT_NAMES = {"lambada_openai": "lambada", "mmlu_no_train": "mmlu"}
_INSTEAD = f"Set --data-dir or {DATA_VARIABLE} to a folder with"
# Splits that were read and checked, the newest last: planning a run asks for the same few dozens of times.
_kept: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
_KEPT_SPLITS, _KEPT_LETTERS = 8, 1 << 24  # at most; a larger split is read each time, not kept in memory


class MissingData(EnvironmentProblem):
    """A folder of local data lacks a data set or a split. Callers that can do without the data catch this."""


def draw(
    rows: Iterable[dict[str, Any]], key: Callable[[Mapping[str, Any]], str], request: ExampleRequest
) -> list[dict[str, Any]]:
    """The rows of a request: `count` of the split's rows in seeded order, or all rows if there are fewer."""
    # Divided before shuffling: no seed may move a row from one use to another.
    wanted = held_out(rows, key, request.split)
    random.Random(request.seed).shuffle(wanted)
    return wanted[: request.count]


def held_out(rows: Iterable[dict[str, Any]], key: Callable[[Mapping[str, Any]], str], use: Use) -> list[dict[str, Any]]:
    """The rows of one use, in their order."""
    return [row for row in rows if _use(key(row)) == use]


def _use(key: str) -> Use:
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    # The last digit decides what is held out; the next one, independent of it, divides that.
    if number % 10:
        return "train"
    return "validation" if number // 10 % 10 < 3 else "calibration"


class Place(NamedTuple):
    """The folder of a data set in a folder of local data. If it has a `subject`, only such rows belong to it."""

    folder: Path
    subject: str | None = None

    def split_file(self, split: str) -> Path | None:
        files = (self.folder / f"{split}{suffix}" for suffix in _SUFFIXES)
        return next((file for file in files if file.is_file()), None)

    def stamp(self, split: str) -> object:
        """Something that differs once the file of a split, or a copy of the hub's repository, has changed."""
        if (file := self.split_file(split)) is None:
            return None if self.splits else folder_digest(self.folder)
        found = file.stat()
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino

    @property
    def splits(self) -> list[str]:
        """Names of the splits that have a file; empty for a copy of the hub's repository."""
        files = (file for suffix in _SUFFIXES for file in self.folder.glob(f"*{suffix}"))
        return sorted({file.name.partition(".jsonl")[0] for file in files})


@dataclass(frozen=True)
class Source:
    """A data set.

    Attributes:
        hub_id: Name on the Hugging Face hub.
        fields: Fields that every row must have; by default those of the first row.
        configuration: Configuration on the hub, if the data set has several.
        exact: Whether local files must lie under the whole name, since another data set has the same last part.
        may_be_empty: Fields that may be empty in some rows.
        form: Converts a row to what its tasks need; a row for which this fails is refused.
    """

    hub_id: str
    fields: tuple[str, ...] = ()
    configuration: str | None = None
    exact: bool = False
    may_be_empty: tuple[str, ...] = ()
    form: Callable[[Row], object] | None = None

    @property
    def name(self) -> str:
        """Last part of the name on the hub."""
        return self.hub_id.rpartition("/")[2]

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of a data folder in which the data set is looked for, the first choice first."""
        plain, own = self._plain_folders, list[str]()
        if self.configuration is not None:
            ends = f"/{self.configuration}", f"_{self.configuration.replace('-', '_')}"
            own = [base + end for base in plain for end in ends]
        return tuple(dict.fromkeys((*own, *plain)))

    @property
    def _plain_folders(self) -> list[str]:
        """Those that do not name the configuration."""
        return [self.hub_id] if self.exact else [self.hub_id, self.name, _SHORT_NAMES.get(self.name, self.name)]

    def place(self, root: Path) -> Place:
        """The data set's folder in a folder of local data; `MissingData` if there is none."""
        for name in self.folders:
            place = Place((root / name).resolve())
            if place.folder.is_dir():
                # A plain folder may hold all configurations: then only rows with this one's `subject` are read.
                whole = name not in self._plain_folders or self.configuration in _PLAIN or not place.splits
                return place if whole else Place(place.folder, self.configuration)
        raise MissingData(
            f"The data set {self} cannot be read: it must be a folder of {str(root)!r} called "
            f"{' or '.join(self.folders)}, but there is none. {_INSTEAD} {self.folders[-1]}/<split>.jsonl, or leave "
            f"both out to read from the Hugging Face hub."
        )

    def needed(self, split: str) -> Needed:
        """A split as it is needed from the hub, with the local file that could take its place."""
        folder = self.name if self.configuration is None else f"{self.name}/{self.configuration}"
        return Needed("data set", str(self), f"{folder}/{split}.jsonl")

    def __str__(self) -> str:
        return self.hub_id if self.configuration is None else f"{self.hub_id} ({self.configuration})"


def data_root(data_dir: Path | str | None) -> Path | None:
    """The folder of local data: the given one, else `ADAPTIVE_BENCH_DATA`; `None` means the hub."""
    chosen = data_dir or os.environ.get(DATA_VARIABLE) or None
    return None if chosen is None else Path(chosen)


def read_lines(path: Path, fields: Sequence[str] = ()) -> list[dict[str, Any]]:
    """All rows of a `.jsonl` or `.jsonl.gz` file. An `EnvironmentProblem` names the line if the file cannot be read, is
    cut off or is not UTF-8, or a line is not an object with the fields (by default those of the first row).
    """
    rows: list[dict[str, Any]] = []
    number = 0  # for a file that cannot even be opened
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if not line.strip():
                    continue
                # Windows editors begin a UTF-8 file with a byte order mark.
                row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                if not isinstance(row, dict):
                    raise ValueError(f"it is of the kind {type(row).__name__}")
                # The first row is compared with itself.
                if missing := [field for field in fields or (rows or [row])[0] if field not in row]:
                    raise ValueError(f"it lacks {', '.join(missing)} (found: {', '.join(row)})")
                rows.append(row)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise EnvironmentProblem(
            f"A data file holds one JSON object in UTF-8 a line, with the fields of the data set on the Hugging Face "
            f"hub, but {path} cannot be read at line {number}: {error}. It may be cut off; fetch it again."
        ) from error
    if not rows:
        raise EnvironmentProblem(f"A data file holds one JSON object a line, but {path} is empty. Fetch it again.")
    return rows


def read_rows(source: Source, split: str, data_dir: Path | str | None = None) -> list[dict[str, Any]]:
    """All rows of a split: `train`, `validation` or `test`.

    Args:
        data_dir: Folder with local data; `None` for `ADAPTIVE_BENCH_DATA`, or the hub if that is not set. The hub does
            not replace what the folder lacks.

    Raises:
        EnvironmentProblem: The data cannot be read, or a row lacks a field, has an empty field or has the wrong form.
    """
    root = data_root(data_dir)
    about: tuple[Any, ...] = (source, split)
    if root is not None:
        place = source.place(root)
        about += (place, place.stamp(split))
    if (rows := _kept.get(about)) is None:
        found = _hub_rows(source, split) if root is None else _local_rows(place, source, split)
        rows = _checked(source, split, found)
        if sum(len(text) for row in rows for text in row.values() if isinstance(text, str)) > _KEPT_LETTERS:
            return rows
        _kept[about] = rows
        if len(_kept) > _KEPT_SPLITS:
            del _kept[next(iter(_kept))]
    return [dict(row) for row in rows]  # callers may change theirs


def _hub_rows(source: Source, split: str) -> list[dict[str, Any]]:
    import datasets

    with _of_the_hub(source, split), hub_or_cache(source.needed(split)):
        rows: list[dict[str, Any]] = datasets.load_dataset(source.hub_id, source.configuration, split=split).to_list()
    return rows


def _checked(source: Source, split: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, if they have all fields, none that is needed is empty, and every row has the right form."""
    if missing := [field for field in source.fields if found and field not in found[0]]:
        raise EnvironmentProblem(
            f"Rows of {source} have the fields {', '.join(source.fields)}, but {split!r} lacks {', '.join(missing)} "
            f"(found: {', '.join(found[0])}). Use the fields of {source.hub_id} on the hub."
        )
    needed = [field for field in source.fields if field not in source.may_be_empty]
    for number, row in enumerate(found, 1):
        if empty := [field for field in needed if row[field] is None or not str(row[field]).strip()]:
            raise EnvironmentProblem(
                f"Every row of {source} has the fields {', '.join(needed)}, but in row {number} of {split!r} "
                f"{' and '.join(empty)} is empty. Correct that row, or fetch the data again."
            )
        try:
            if source.form is not None:
                source.form(row)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            shown = one_line(", ".join(f"{field} {row.get(field)!r:.60}" for field in source.fields), 300)
            raise EnvironmentProblem(
                f"Rows of {source} have the form of the data set on the Hugging Face hub, but row {number} of "
                f"{split!r} does not ({type(error).__name__}: {message_of(error)}): {shown}. Correct that row, or "
                f"fetch the data again."
            ) from error
    return found


def read_several(
    wanted: Sequence[tuple[Source, str]], data_dir: Path | str | None = None
) -> list[list[dict[str, Any]]]:
    """All rows of several splits; see `read_rows`. One error names all that cannot be read, so that they can be fetched
    together.
    """
    found, errors = list[list[dict[str, Any]]](), list[EnvironmentProblem]()
    for source, split in wanted:
        try:
            found.append(read_rows(source, split, data_dir))
        except EnvironmentProblem as error:
            errors.append(error)
    # Still `MissingData`, so that callers can do without it.
    if errors and all(isinstance(error, MissingData) for error in errors):
        raise MissingData(" ".join(dict.fromkeys(map(str, errors))))
    raise_together(errors)
    return found


def stream_rows(source: Source, split: str) -> Iterator[dict[str, Any]]:
    """The rows of a split of the hub one by one, without downloading the rest."""
    import datasets

    with _of_the_hub(source, split):
        with hub_or_cache(source.needed(split)):
            stream = datasets.load_dataset(source.hub_id, source.configuration, split=split, streaming=True)
        # Inside, since most of the reading happens here, and its errors need the same words.
        yield from stream


def local_splits(data_dir: str, hub_id: str, configuration: str | None, splits: Iterable[str], **_: Any) -> Any:
    """Splits of a local data set in the form that lm-eval expects of a task's `custom_dataset`, to which it also passes
    the task's metadata.
    """
    source = Source(hub_id, configuration=configuration)
    place = source.place(Path(data_dir))
    return harness_splits({split: _local_rows(place, source, split) for split in splits}, source)


def harness_splits(splits: Mapping[str, Iterable[Row]], source: Source | None = None) -> datasets.DatasetDict:
    """Splits in the form that lm-eval expects of a task's `custom_dataset`; an `EnvironmentProblem` if a field has
    values of different kinds.
    """
    import datasets

    found = datasets.DatasetDict()
    for name, rows in splits.items():
        try:
            found[name] = datasets.Dataset.from_list(list(rows))
        except (ValueError, TypeError) as error:  # from pyarrow
            where = f"{name!r} of {source}" if source else repr(name)
            raise EnvironmentProblem(
                f"A field has values of one kind, but the split {where} mixes them: {' '.join(str(error).split())}. "
                f"Use the format of the data set on the Hugging Face hub."
            ) from error
    return found


def revision(dataset: datasets.Dataset) -> str | None:
    """The commit of the hub that a data set was read from; `None` for local files."""
    # `datasets` notes addresses such as `hf://datasets/owner/name@<commit>/file`, and no commit of its own.
    for url in dataset.info.download_checksums or {}:
        if found := re.search(r"@([0-9a-f]{40})/", str(url)):
            return found.group(1)
    return None


def _local_rows(place: Place, source: Source, split: str) -> list[dict[str, Any]]:
    if not place.splits:
        return _copied_rows(place, source, split)
    if (file := place.split_file(split)) is None:
        raise MissingData(
            f"The split {split!r} of {source} cannot be read: there is no {split}.jsonl or {split}.jsonl.gz in "
            f"{str(place.folder)!r} (found: {', '.join(place.splits)}). {_INSTEAD} "
            f"{place.folder.name}/{split}.jsonl."
        )
    found = read_lines(file, source.fields)
    if place.subject is None:
        return found
    of_subject = [row for row in found if row.get(_SUBJECT) == place.subject]
    if not of_subject:
        raise EnvironmentProblem(
            f"The folder {str(place.folder)!r} is read as {source} if its rows have the {_SUBJECT!r} "
            f"{place.subject!r}, but {file.name} has none. Put the data into {source.name}/{source.configuration} of "
            f"--data-dir."
        )
    return of_subject


def _copied_rows(place: Place, source: Source, split: str) -> list[dict[str, Any]]:
    """The rows of a copy of the hub's repository, in any format that the hub supports."""
    import datasets

    # The cache of `datasets` identifies a file by name, size and time. A cache folder for each content is safer.
    cache = Path(datasets.config.HF_DATASETS_CACHE) / "adaptive_bench" / folder_digest(place.folder)
    try:
        rows = datasets.load_dataset(str(place.folder), source.configuration, split=split, cache_dir=str(cache))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise EnvironmentProblem(
            f"The split {split!r} of {source} cannot be read: {str(place.folder)!r} has no {split}.jsonl and is no "
            f"copy of the hub's repository either ({' '.join(str(error).split())[:300]}). {_INSTEAD} "
            f"{place.folder.name}/{split}.jsonl."
        ) from error
    return list(rows.to_list())


@contextmanager
def _of_the_hub(source: Source, split: str) -> Iterator[None]:
    """Turn errors of reading a split from the hub within the block into errors that a user can act on."""
    import datasets
    from huggingface_hub.errors import HfHubHTTPError

    if Path(source.hub_id).exists():
        raise UsageError(
            f"A data set of the hub is read by its name, but {source.hub_id!r} is also a path from here, which the "
            f"datasets library would read instead. To measure the text there, write perplexity:./{source.hub_id}; "
            f"for the data set give the command in another folder, or name a folder that has it with --data-dir."
        )
    try:
        yield
    except (OSError, ValueError, HfHubHTTPError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())[:300]
        gated = " Accept its terms on the hub and set HF_TOKEN." if "gated" in reason.lower() else ""
        raise EnvironmentProblem(
            f"The split {split!r} of {source} cannot be read from the Hugging Face hub: {reason}.{gated} "
            f"{_INSTEAD} {source.name}/{split}.jsonl, or connect to the hub."
        ) from error
