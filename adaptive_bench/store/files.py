"""Files of a record: read as they were written, or not at all.

A JSON file ends with a digest of what it says (`digest.sealed`). One without is taken for changed, whoever wrote it:
else whoever removes the digest could change the rest.

What takes time in a large run is opening files, not reading them. There the files of a finished record are folded into
one, `result.json`: sealed, with the text of each under its name. A file that lies beside it counts instead of the one
in it, so that work goes on in a folded record as in any other.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store import atomic
from adaptive_bench.store.digest import digest_in, is_intact, parsed, sealed
from adaptive_bench.store.schema import SCHEMA, check_schema

FOLDED = "result.json"
DOCUMENTS = ".samples.jsonl"  # ends the name of a measured point's documents
_RESULTS = (".json", DOCUMENTS)
NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?(?:e-[0-9]{2})?"  # of a measured point: `f"{saving:g}"`
POINT = re.compile(rf"({NUMBER})\.json", re.ASCII)
# Every file of a record that others may rely on. What else lies there, such as a copy, belongs to nobody.
OURS = (
    r"(?:(?:config|env|status|data|cost|target|timing|dial|calibration|behaviour)\.json|train\.jsonl"
    rf"|{NUMBER}(?:\.json|\.samples\.jsonl))"
)
NOT_SEALED = ("timing.json",)  # it holds no result: how long a training took
_MOST_KEPT_BYTES = 10_000_000  # by `read_once`, of texts; what was parsed takes a few times as much
_LOOKED_AT = 500  # records until it is asked again how much is kept


class Files:
    """The files of one record, each of them read and parsed once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._contents: dict[str, bytes | None] = {}
        self._sound: dict[str, bool] = {}
        self._values: dict[str, dict[str, Any] | None] = {}
        self._texts: Mapping[str, str] | None = None
        self._names: list[str] | None = None
        self.size_bytes = 0

    def content(self, name: str) -> bytes | None:
        """A file as it is; `None` if there is none.

        Raises:
            EnvironmentProblem: It may not be read.
        """
        found = self._loose(name)
        return self._folded[name].encode() if found is None and name != FOLDED and name in self._folded else found

    def read(self, name: str) -> dict[str, Any] | None:
        """What a JSON file says, or `None` if it is not there or is not what was written.

        Raises:
            EnvironmentProblem: A newer version wrote it, or it may not be read.
        """
        if name not in self._values:
            content = self._loose(name)
            if content is not None:
                values = self._parsed(name, content) if self._is_intact(name) else None
            else:  # a folded one was intact, and its seal is that of the whole
                values = self._parsed(name, self._folded[name]) if name in self._folded else None
            self._values[name] = values
        return self._values[name]

    def names(self) -> list[str]:
        """Names of all files, those that are folded included; none where there is no folder."""
        return sorted({*self._listed(), *self._folded} - {FOLDED})

    def damaged(self) -> list[str]:
        """Names of the JSON files that cannot be read, or say something else than was written."""
        sealed_ones = (name for name in self._listed() if name.endswith(".json") and name not in NOT_SEALED)
        return [name for name in sealed_ones if not self._is_intact(name)]

    def seal(self, name: str) -> str | None:
        """The digest that a JSON file ends with; `None` where there is no such file, or not as it was written."""
        content = self.content(name)  # a folded one was intact, see `read`
        return None if content is None or not self._is_intact(name) else digest_in(content)

    def release(self) -> None:
        """Keep no content; it is read again where it is asked for."""
        for kept in (self._contents, self._sound, self._values):
            kept.clear()
        self._texts, self.size_bytes = None, 0

    def _loose(self, name: str) -> bytes | None:
        if name not in self._contents:
            # To list a folder takes as long as to look for one file that is not there, and most are folded.
            found = self._contents[name] = _content(self.folder, name) if name in self._listed() else None
            self.size_bytes += len(found or b"")
        return self._contents[name]

    def _is_intact(self, name: str) -> bool:
        """Whether a file of the folder is as it was sealed; true where there is none."""
        if name not in self._sound:
            content = self._loose(name)
            self._sound[name] = content is None or is_intact(content)
        return self._sound[name]

    def _parsed(self, name: str, content: str | bytes) -> dict[str, Any] | None:
        """What an intact file says."""
        try:
            values: dict[str, Any] = parsed(content if isinstance(content, str) else content.decode())
        except (ValueError, RecursionError):
            return None
        check_schema(values, f"{self.folder}/{name}")  # a path for each file would take longer than to parse it
        del values["content_sha256"]
        return values

    def _listed(self) -> list[str]:
        """Names in the folder."""
        if self._names is None:
            try:
                self._names = sorted(os.listdir(self.folder))  # noqa: PTH208 - a path for each takes longer
            except (FileNotFoundError, NotADirectoryError):
                self._names = []
        return self._names

    @property
    def _folded(self) -> Mapping[str, str]:
        """The texts in `result.json`, none where it is missing or damaged."""
        if self._texts is None:
            self._texts = {}
            if (content := self._loose(FOLDED)) is not None and self._is_intact(FOLDED):
                about = self._parsed(FOLDED, content) or {"files": {}}
                self._texts = {name: text for name, text in about["files"].items() if name.endswith(_RESULTS)}
        return self._texts


class _Kept:
    """Files of records that were looked at: those looked at last with their content."""

    def __init__(self) -> None:
        self.files: dict[Path, Files] = {}
        self._read: deque[Files] = deque()

    def of(self, folder: Path) -> Files:
        found = self.files.get(folder)
        if found is None:
            found = self.files[folder] = Files(folder)
        if not found.size_bytes:  # it will be read now
            self._read.append(found)
            if len(self._read) % _LOOKED_AT == 0:
                total = sum(one.size_bytes for one in self._read)
                while total > _MOST_KEPT_BYTES and len(self._read) > 1:
                    oldest = self._read.popleft()
                    total -= oldest.size_bytes
                    oldest.release()
        return found


# Of each thread its own: two that look at once would else end each other's block, and one of them leave it for good.
_kept: ContextVar[_Kept | None] = ContextVar("kept", default=None)


@contextmanager
def read_once() -> Iterator[None]:
    """Within the block files of records are read once, for as many as memory should be spent on. For those who look at
    what is there while nobody of this process works on it.
    """
    before = _kept.get()
    token = _kept.set(_Kept() if before is None else before)
    try:
        yield
    finally:
        _kept.reset(token)


def files_of(folder: Path) -> Files:
    """The files of a record."""
    kept = _kept.get()
    return Files(folder) if kept is None else kept.of(folder)


def forget(folder: Path) -> None:
    """What was read of a record is not what is there any more."""
    kept = _kept.get()
    if kept is not None and (found := kept.files.pop(folder, None)) is not None:
        found.release()


def fold(folder: Path) -> None:
    """Put the results of a finished record into one file. Those that are damaged stay as they are."""
    files = Files(folder)
    damaged = files.damaged()
    names = [name for name in files.names() if name.endswith(_RESULTS) and name not in NOT_SEALED]
    texts = {name: (files.content(name) or b"").decode() for name in names if name not in damaged}
    if FOLDED not in damaged and any((folder / name).is_file() for name in texts):
        atomic.write_text(folder / FOLDED, folded_text(texts))
        for name in texts:
            (folder / name).unlink(missing_ok=True)
        forget(folder)


def folded_text(texts: Mapping[str, str]) -> str:
    """The text of a `result.json`, from those of the files by name."""
    return sealed(json.dumps({"schema": SCHEMA, "files": texts}, ensure_ascii=False, indent=2))


def missing_halves(names: Iterable[str]) -> list[str]:
    """Names of files that lack beside others: of a measured point its documents, or of documents their point."""
    known = set(names)
    points = {name.removesuffix(".json") for name in known if POINT.fullmatch(name)}
    documents = {
        name.removesuffix(DOCUMENTS)
        for name in known
        if name.endswith(DOCUMENTS) and POINT.fullmatch(f"{name.removesuffix(DOCUMENTS)}.json")
    }
    return [
        *(f"{text}{DOCUMENTS}" for text in sorted(points - documents)),
        *(f"{text}.json" for text in sorted(documents - points)),
    ]


def read_file(path: Path) -> dict[str, Any] | None:
    """See `Files.read`."""
    return files_of(path.parent).read(path.name)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for somebody who writes into it


def _content(folder: Path, name: str) -> bytes | None:
    path = f"{folder}/{name}"
    try:
        with open(path, "rb", buffering=0, opener=_opened) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise EnvironmentProblem(
                    f"A record has a file {name}, but {path!r} is a pipe or a device. Remove it and give the same "
                    f"command again."
                )
            return stream.readall()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise EnvironmentProblem(
            f"A record has a file {name}, but {path!r} is a folder. Remove it and give the same command again."
        ) from None
    except OSError as error:
        raise EnvironmentProblem(
            f"A record must be readable, but {path!r} is not: {error.strerror or error}. Change its permissions, "
            "or choose another --out."
        ) from error
