"""Reads data sets by their name on the hub, from local files or the hub itself, and divides training splits by use.

A tenth of the rows of a training split is held out, chosen by a hash of each row's key. Of these, seven in ten
calibrate thresholds and three in ten are validation documents for choosing settings; the other rows are trained on. The
choice does not depend on seed, order or machine, and no row has two uses.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adaptive_bench.config import DATA_VARIABLE
from adaptive_bench.data.folders import SUBJECT, MissingData, Place, find_place, folder_names, read_lines
from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of, one_line
from adaptive_bench.hub import Needed, OutOfReach, hub_or_cache, raise_together
from adaptive_bench.store.keys import file_digest, folder_digest
from adaptive_bench.task import ExampleRequest

if TYPE_CHECKING:
    import datasets


Use = Literal["train", "calibration", "validation"]


def draw(
    rows: Iterable[dict[str, Any]], key: Callable[[Mapping[str, Any]], str], request: ExampleRequest
) -> list[dict[str, Any]]:
    """Return the rows of a request: `count` of the split's rows in seeded order, or all rows if there are fewer."""
    wanted = held_out(rows, key, request.split)
    random.Random(request.seed).shuffle(wanted)
    return wanted[: request.count]


def held_out(rows: Iterable[dict[str, Any]], key: Callable[[Mapping[str, Any]], str], use: Use) -> list[dict[str, Any]]:
    """Return the rows of one use, in their order."""
    return [row for row in rows if _use(key(row)) == use]


def _use(key: str) -> Use:
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    if number % 10:
        return "train"
    return "validation" if number // 10 % 10 < 3 else "calibration"


Row = Mapping[str, Any]

_KEPT_BYTES = 30_000_000  # largest data file whose rows are kept in memory


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
    def folders(self) -> tuple[str, ...]:
        """Folders of a data folder that may hold the data set (see `folder_names`)."""
        return tuple(folder_names(self.hub_id, self.configuration, exact=self.exact))

    def place(self, root: Path) -> Place:
        """Return the data set's folder in a folder of local data.

        Raises:
            EnvironmentProblem: There is no such folder.
        """
        return find_place(root, self.hub_id, self.configuration, exact=self.exact)

    def needed(self, split: str) -> Needed:
        """Return the description of a split as needed from the hub, with the local file that could take its place."""
        return Needed("data set", str(self), f"{folder_names(*_named(self))[0]}/{split}.jsonl")

    def __str__(self) -> str:
        return self.hub_id if self.configuration is None else f"{self.hub_id} ({self.configuration})"


def data_root(data_dir: Path | str | None) -> Path | None:
    """Return the folder of local data: the given one, else `ADAPTIVE_BENCH_DATA`; `None` means the hub."""
    chosen = data_dir or os.environ.get(DATA_VARIABLE) or None
    return None if chosen is None else Path(chosen)


def read_rows(source: Source, split: str, data_dir: Path | str | None = None) -> list[dict[str, Any]]:
    """Read all rows of a split.

    Args:
        source: The data set.
        split: `train`, `validation` or `test`.
        data_dir: Folder with local data; `None` for `ADAPTIVE_BENCH_DATA`, or the hub if that is not set. If the given
            folder lacks the data, that is an error; the hub is not tried instead.

    Raises:
        EnvironmentProblem: The data cannot be read, or a row lacks a field, has an empty field or has the wrong form.
    """
    root = data_root(data_dir)
    if root is None:
        import datasets

        with _of_the_hub(source, split), hub_or_cache(source.needed(split)):
            rows = datasets.load_dataset(source.hub_id, source.configuration, split=split)
        _check_fields(source, split, rows.column_names)
        return _checked(source, split, rows.to_list())
    place = source.place(root)
    file = place.split_file(split)
    if file is None or not os.access(file, os.R_OK) or file.stat().st_size > _KEPT_BYTES:
        return _checked(source, split, _local_rows(place, source, split))
    return [dict(row) for row in _kept_rows(source, split, place, file_digest(file))]


@lru_cache(maxsize=8)  # a plan asks for the same rows again for every seed
def _kept_rows(source: Source, split: str, place: Place, digest: str) -> list[dict[str, Any]]:
    """Return the rows of a local file with this digest. They are shared, so `read_rows` hands out copies."""
    return _checked(source, split, _local_rows(place, source, split))


def _checked(source: Source, split: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows after checking that no needed field is empty and that every row has the right form.

    Raises:
        EnvironmentProblem: A row has an empty field or the wrong form.
    """
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
    """Read all rows of several splits; see `read_rows`.

    Raises:
        EnvironmentProblem: Some splits cannot be read. One error names all of them, so that they can be fetched
            together.
    """
    found, errors = list[list[dict[str, Any]]](), list[EnvironmentProblem]()
    for source, split in wanted:
        try:
            found.append(read_rows(source, split, data_dir))
        except EnvironmentProblem as error:
            errors.append(error)
    if len(errors) > 1 and not any(isinstance(error, OutOfReach) for error in errors):
        kind = MissingData if all(isinstance(error, MissingData) for error in errors) else EnvironmentProblem
        raise kind(" ".join(dict.fromkeys(map(str, errors)))) from errors[0]
    raise_together(errors)
    return found


def stream_rows(source: Source, split: str) -> Iterator[dict[str, Any]]:
    """Give the rows of a split of the hub one by one, without downloading the rest.

    Raises:
        EnvironmentProblem: The data cannot be read.
    """
    import datasets

    with _of_the_hub(source, split):
        with hub_or_cache(source.needed(split)):
            stream = datasets.load_dataset(source.hub_id, source.configuration, split=split, streaming=True)
        yield from stream


def local_splits(data_dir: str, hub_id: str, configuration: str | None, splits: Iterable[str], **_: Any) -> Any:
    """Return splits of a local data set in the form that lm-eval expects of a task's `custom_dataset`.

    lm-eval also passes a task's metadata, which is ignored.
    """
    source = Source(hub_id, configuration=configuration)
    place = source.place(Path(data_dir))
    return harness_splits({split: _local_rows(place, source, split) for split in splits}, source)


def harness_splits(splits: Mapping[str, Iterable[Row]], source: Source | None = None) -> datasets.DatasetDict:
    """Return splits in the form that lm-eval expects of a task's `custom_dataset`.

    Raises:
        EnvironmentProblem: A field has values of different kinds.
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
    """Return the commit of the hub that a data set was read from; `None` for local files."""
    for url in dataset.info.download_checksums or {}:
        if found := re.search(r"@([0-9a-f]{40})/", str(url)):
            return found.group(1)
    return None


def _local_rows(place: Place, source: Source, split: str) -> list[dict[str, Any]]:
    if not place.splits:
        rows = _copied_rows(place, source, split)
        _check_fields(source, split, rows.column_names)
        return rows.to_list()
    file = place.split_file(split)
    if file is None:
        raise MissingData(
            f"The split {split!r} of {source} cannot be read: there is no {split}.jsonl or {split}.jsonl.gz in "
            f"{str(place.folder)!r} (found: {', '.join(place.splits)}). Put it there, or set --data-dir or "
            f"{DATA_VARIABLE} to a folder with {place.folder.name}/{split}.jsonl."
        )
    found = read_lines(file, source.fields)
    if place.subject is None:
        return found
    if any(SUBJECT not in row for row in found) or not any(row[SUBJECT] == place.subject for row in found):
        raise EnvironmentProblem(
            f"The folder {str(place.folder)!r} is read as {source} if its rows have the {SUBJECT!r} "
            f"{place.subject!r}, but {file.name} has none. Put the data into {folder_names(*_named(source))[0]} of "
            f"--data-dir."
        )
    return [row for row in found if row[SUBJECT] == place.subject]


def _named(source: Source) -> tuple[str, str | None]:
    return source.hub_id.rpartition("/")[2], source.configuration


def _copied_rows(place: Place, source: Source, split: str) -> datasets.Dataset:
    """Read the rows of a copy of the hub's repository, in any format that the hub supports."""
    import datasets

    # The cache of `datasets` identifies a file by name, size and time. A cache folder for each content is safer.
    content = folder_digest(place.folder)
    cache = Path(datasets.config.HF_DATASETS_CACHE) / "adaptive_bench" / content
    try:
        return datasets.load_dataset(str(place.folder), source.configuration, split=split, cache_dir=str(cache))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise EnvironmentProblem(
            f"The split {split!r} of {source} cannot be read: {str(place.folder)!r} has no {split}.jsonl and is no "
            f"copy of the hub's repository either ({' '.join(str(error).split())[:300]}). Set --data-dir or "
            f"{DATA_VARIABLE} to a folder with {place.folder.name}/{split}.jsonl."
        ) from error


@contextmanager
def _of_the_hub(source: Source, split: str) -> Iterator[None]:
    """Turn errors of reading a split from the hub within the block into errors that a user can act on. A name that is
    also a path from the working directory is refused, because `datasets` would read that path instead.
    """
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
        name = source.hub_id.rpartition("/")[2]
        raise EnvironmentProblem(
            f"The split {split!r} of {source} cannot be read from the Hugging Face hub: {reason}.{gated} Set "
            f"--data-dir or {DATA_VARIABLE} to a folder with {name}/{split}.jsonl, or connect to the hub."
        ) from error


def _check_fields(source: Source, split: str, found: list[str]) -> None:
    if missing := [field for field in source.fields if field not in found]:
        raise EnvironmentProblem(
            f"Rows of {source} have the fields {', '.join(source.fields)}, but {split!r} lacks {', '.join(missing)} "
            f"(found: {', '.join(found)}). Use the fields of {source.hub_id} on the hub."
        )
