"""Files of records in one `.tar.xz`, arranged by columns (`columnar`): the same files, byte for byte, in less room.

Its members are the names of the files, what of each is left out because it follows from the others (`_SEALED`,
`_POINTS_TO_DOCUMENTS`), and the streams of each part. An archive is untrusted input: what is too large, or not what
`archived` writes, rejects all of it.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from adaptive_bench.store.columnar import MOST_VALUES, STREAMS, arranged, restored
from adaptive_bench.store.digest import seal_of, without_seal
from adaptive_bench.store.files import DOCUMENTS, POINT

LARGEST_UNPACKED_BYTES = 2_000_000_000
LARGEST_FILE_BYTES = 50_000_000
MOST_FILES = 500_000
LARGEST_STREAMS_BYTES = 250_000_000  # of all, which are in memory together; as many as 2 GB of files come to
_PART_VALUES: Final = MOST_VALUES // 2  # of files, arranged at a time, as far as they are JSON
_PRESET: Final = 9 | lzma.PRESET_EXTREME  # of xz: looks back 64 MB
_NAMES: Final = "names"
_LEFT_OUT: Final = "left_out"  # a byte for each name
_SEALED: Final = 1  # the seal at the end of a JSON file, which is a digest of what stands before it
_POINTS_TO_DOCUMENTS: Final = 2  # the digest that a measured point has of its documents, which are another file
_DIGEST = re.compile(rb'"samples_sha256": "([0-9a-f]{64})"')
_NO_DIGEST = b'"samples_sha256": ""'
_MEMBER = re.compile(rf"{_NAMES}|{_LEFT_OUT}|(?:0|[1-9][0-9]{{0,5}})/(?:{'|'.join(STREAMS)})", re.ASCII)
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)  # `isreg` takes sparse files too, which unpack to any size
_END_BYTES = 2 * tarfile.BLOCKSIZE  # of zeros, which end an archive that was not cut


def archived(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Files, each with its name, as an archive; the same files give the same bytes, whatever their order.

    Raises:
        ValueError: Two have the same name.
    """
    contents: dict[str, bytes] = {}
    for name, content in files:
        if contents.setdefault(name, content) is not content:
            raise ValueError(f"An archive has a file once, but {name!r} is there twice. Name each file once.")
    names = sorted(contents)
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in names if name.endswith(DOCUMENTS)}
    left_out = bytearray()
    for name in names:
        contents[name], flags = _shortened(contents[name], digests.get(_documents_of(name)))
        left_out.append(flags)
    members = {_NAMES: "\n".join(names).encode(), _LEFT_OUT: bytes(left_out)}
    number = 0
    for group in _groups(names):
        for part in _portions(group, contents):
            streams = arranged([(_text(contents[name]), _has_rows(name)) for name in part])
            # How many files are in a part stands in the part.
            members |= {f"{number}/{stream}": content for stream, content in streams.items() if content}
            number += 1
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name in sorted(members, key=_like_by_like):
            member = tarfile.TarInfo(name)
            member.size = len(members[name])
            archive.addfile(member, io.BytesIO(members[name]))
    return lzma.compress(plain.getbuffer(), preset=_PRESET)


def files_in(file: Path, check: Callable[[str], object]) -> Iterator[tuple[str, bytes]]:
    """The files of an archive, each with its name; documents before the points that they are of.

    Args:
        check: Is given each name before anything else is made of the archive; what it raises ends this.

    Raises:
        OSError, EOFError, LZMAError, tarfile.TarError, ValueError: It is no such archive, or too large.
    """
    members = _members(file)
    names = members[_NAMES].decode("utf-8").split("\n") if members.get(_NAMES) else []
    if len(names) > MOST_FILES:
        raise ValueError(f"it is too large: {len(names)} files")
    for before, name in zip(["", *names], names, strict=False):
        check(name)
        if name <= before:
            raise ValueError(f"{name} is in it twice" if name == before else "its names are not in order")
    left_out = dict(zip(names, members.get(_LEFT_OUT, b""), strict=True))
    texts = (text for part in _parts(members) for text in restored(part))
    digests: dict[str, str] = {}
    total = 0
    for name in (name for group in _groups(names) for name in group):
        length, lines = next(texts, (0, None))
        if lines is None:
            raise ValueError(f"{name} is not in it")
        if length > LARGEST_FILE_BYTES or total + length > LARGEST_UNPACKED_BYTES:
            raise ValueError(f"it is too large: {length} bytes of {name}, {total} before it")
        content = _whole(
            "\n".join(lines).encode("utf-8", "surrogateescape"), left_out[name], digests.get(_documents_of(name))
        )
        total += len(content)  # a letter may have several bytes
        if name.endswith(DOCUMENTS):
            digests[name] = hashlib.sha256(content).hexdigest()
        yield name, content
    if next(texts, None) is not None:
        raise ValueError("there are files in it that have no name")


def _groups(names: Sequence[str]) -> list[list[str]]:
    """Names of files that say alike things: documents of a task, its points, training curves, the rest."""
    found: dict[tuple[int, str], list[str]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        task = folder.rpartition("/")[2].partition("-")[0]  # with its controls, which were asked the same
        if file.endswith(DOCUMENTS):
            key = (0, task)  # first, as points have a digest of them
        elif POINT.fullmatch(file):
            key = (1, task)
        else:
            key = (2 if _has_rows(file) else 3, "")
        found.setdefault(key, []).append(name)
    return [found[key] for key in sorted(found)]


def _portions(names: Sequence[str], contents: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Files of a group that are arranged together: not more than memory should be spent on."""
    part: list[str] = []
    size = 0
    for name in names:
        values = sum(map(contents[name].count, (b",", b"]", b"}")))  # after each value stands one of these
        if part and size + values > _PART_VALUES:
            yield part
            part, size = [], 0
        part.append(name)
        size += values
    yield part


def _like_by_like(member: str) -> tuple[int, int]:
    """Streams of a kind stand together: xz looks back for what it has seen."""
    number, _, stream = member.rpartition("/")
    return (STREAMS.index(stream), int(number)) if number else (-1, member == _LEFT_OUT)


def _shortened(content: bytes, documents: str | None) -> tuple[bytes, int]:
    """A file without what follows from others, and what that was."""
    flags = 0
    if (body := without_seal(content)) is not None:
        content, flags = body, _SEALED
    found = _DIGEST.findall(content)
    if documents is not None and found == [documents.encode()]:
        content, flags = _DIGEST.sub(_NO_DIGEST, content), flags | _POINTS_TO_DOCUMENTS
    return content, flags


def _whole(content: bytes, flags: int, documents: str | None) -> bytes:
    """The file that was shortened."""
    if flags & ~(_SEALED | _POINTS_TO_DOCUMENTS):
        raise ValueError(f"what is left out of a file is no number {flags}")
    if flags & _POINTS_TO_DOCUMENTS:
        if documents is None or content.count(_NO_DIGEST) != 1:
            raise ValueError("a point is to have the digest of its documents, which are not there")
        content = content.replace(_NO_DIGEST, f'"samples_sha256": "{documents}"'.encode())
    return content + seal_of(content) if flags & _SEALED else content


def _documents_of(name: str) -> str:
    return name.removesuffix(".json") + DOCUMENTS


def _has_rows(name: str) -> bool:
    return name.endswith(".jsonl")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _parts(members: Mapping[str, bytes]) -> list[dict[str, bytes]]:
    """The streams of each part; those that are empty were left out."""
    numbers = {int(name.partition("/")[0]) for name in members if "/" in name}
    if numbers != set(range(len(numbers))):
        raise ValueError("its parts are numbered from 0")
    return [{stream: members.get(f"{number}/{stream}", b"") for stream in STREAMS} for number in range(len(numbers))]


class _Bounded(lzma.LZMAFile):
    """Gives no more at a time than a stream may have, whatever a header asks for."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= LARGEST_FILE_BYTES:
            raise ValueError(f"a piece of {size} bytes is too large")
        return super().read(size)


def _members(file: Path) -> dict[str, bytes]:
    """What stands in the archive, by name."""
    found: dict[str, bytes] = {}
    total = 0
    with _Bounded(file) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
        for number, member in enumerate(archive, 1):
            total += member.size
            if member.type not in _PLAIN or member.issparse() or _MEMBER.fullmatch(member.name) is None:
                raise ValueError(
                    f"member {number} is no stream of records; archives of earlier versions have other members, and "
                    f"their runs have to be submitted again"
                )
            if member.name in found:
                raise ValueError(f"{member.name} is in it twice")
            if member.size > LARGEST_FILE_BYTES or total > LARGEST_STREAMS_BYTES:
                raise ValueError(f"it is too large: {member.size} bytes of {member.name}, {total} so far")
            content = archive.extractfile(member)
            assert content is not None  # it is a plain file
            found[member.name] = content.read()
        _check_end(archive, stream)
    return found


def _check_end(archive: tarfile.TarFile, stream: lzma.LZMAFile) -> None:
    """`tarfile` takes what is cut between two members, or goes on with anything else there, for a whole archive."""
    stream.seek(archive.offset)
    end = stream.read(LARGEST_FILE_BYTES)
    if len(end) < _END_BYTES or any(end):
        raise ValueError("it does not end where its last member does: it was cut, or something was added")
