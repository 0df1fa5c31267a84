"""Files of records in one `.tar.xz`, arranged by columns (`columnar`): the same files, byte for byte, in less room.

Its members are the names of the files, what of each is left out because it follows from the others (`_SEALED`,
`_POINTS_TO_DOCUMENTS`), a digest of all files, and the streams of each part. An archive is untrusted input: what is too
large, or not what was archived, rejects all of it. Whoever forges one can write the digest anew: it finds damage, not
forgery.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from adaptive_bench.store.columnar import MOST_VALUES, STREAMS, arranged, restored
from adaptive_bench.store.digest import seal_of, without_seal
from adaptive_bench.store.files import DOCUMENTS, POINT
from adaptive_bench.store.xz import compressed, unpacked

LARGEST_UNPACKED_BYTES = 2_000_000_000
LARGEST_FILE_BYTES = 50_000_000
MOST_FILES = 500_000
LARGEST_STREAMS_BYTES = 250_000_000  # of all, which are in memory together; as many as 2 GB of files come to
_PART_VALUES: Final = MOST_VALUES // 2  # of files, arranged at a time, as far as they are JSON
_PART_BYTES: Final = 25_000_000  # of them: so no stream of theirs is larger than a member may be
_NAMES: Final = "names"
_LEFT_OUT: Final = "left_out"  # a byte for each name
_FILES_DIGEST: Final = "digest"
_SEALED: Final = 1  # the seal at the end of a JSON file, which is a digest of what stands before it
_POINTS_TO_DOCUMENTS: Final = 2  # the digest that a measured point has of its documents, which are another file
_DIGEST = re.compile(rb'"samples_sha256": "([0-9a-f]{64})"')
_NO_DIGEST = b'"samples_sha256": ""'
_MEMBER = re.compile(rf"{_NAMES}|{_LEFT_OUT}|{_FILES_DIGEST}|(?:0|[1-9][0-9]{{0,5}})/(?:{'|'.join(STREAMS)})", re.ASCII)
_END_BYTES = 2 * tarfile.BLOCKSIZE  # of zeros, which end an archive that was not cut


def archived(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Files, each with its name, as an archive; the same files give the same bytes, whatever their order.

    Raises:
        ValueError: Two have the same name, or they are more or larger than an archive may hold.
    """
    contents: dict[str, bytes] = {}
    for name, content in files:
        if name in contents:
            raise ValueError(f"An archive has a file once, but {name!r} is there twice. Name each file once.")
        contents[name] = content
    names = sorted(contents)
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in names if name.endswith(DOCUMENTS)}
    digest, short, left_out = _Digest(), {}, bytearray()
    for name in (name for group in _groups(names) for name in group):
        digest.add(name, contents[name])
    for name in names:
        short[name], flags = _shortened(contents[name], digests.get(_documents_of(name)))
        left_out.append(flags)
    members = {_NAMES: "\n".join(names).encode(), _LEFT_OUT: bytes(left_out), _FILES_DIGEST: digest.value}
    number = 0
    for group in _groups(names):
        for part in _portions(group, short):
            streams = arranged([(_text(short[name]), _has_rows(name)) for name in part])
            # How many files are in a part stands in the part.
            members |= {f"{number}/{stream}": content for stream, content in streams.items() if content}
            number += 1
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name in sorted(members, key=_like_by_like):
            member = tarfile.TarInfo(name)
            member.size = len(members[name])
            archive.addfile(member, io.BytesIO(members[name]))
    for name, content in _files_of(_members(plain.getvalue()), str):  # what could not be read is not written
        assert content == contents[name]
    return compressed(plain.getbuffer())


def files_in(file: Path, check: Callable[[str], object]) -> Iterator[tuple[str, bytes]]:
    """The files of an archive, each with its name; documents before the points that they are of.

    Args:
        check: Is given each name before anything else is made of the archive; what it raises ends this.

    Raises:
        OSError, EOFError, LZMAError, tarfile.TarError, ValueError: It is no such archive, or too large.
    """
    yield from _files_of(_members(unpacked(file, LARGEST_STREAMS_BYTES)), check)


def _files_of(members: Mapping[str, bytes], check: Callable[[str], object]) -> Iterator[tuple[str, bytes]]:
    names = members[_NAMES].decode("utf-8").split("\n") if members.get(_NAMES) else []
    if len(names) > MOST_FILES:
        raise ValueError(f"it is too large: {len(names)} files")
    for before, name in zip(["", *names], names, strict=False):
        check(name)
        if name <= before:
            raise ValueError(f"{name} is in it twice" if name and name == before else "its names are not in order")
    left_out = dict(zip(names, members.get(_LEFT_OUT, b""), strict=True))
    texts = (text for part in _parts(members) for text in restored(part))
    digest, digests = _Digest(), dict[str, str]()
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
        digest.add(name, content)
        yield name, content
    if next(texts, None) is not None:
        raise ValueError("there are files in it that have no name")
    if digest.value != members.get(_FILES_DIGEST):
        raise ValueError("its files are not those that it was made of: it was damaged")


class _Digest:
    """Of files, in their order in an archive."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, name: str, content: bytes) -> None:
        self._hash.update(f"{len(name.encode())} {len(content)} {name}".encode())
        self._hash.update(content)

    @property
    def value(self) -> bytes:
        return self._hash.digest()


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
    size = 0.0
    for name in names:
        values = sum(map(contents[name].count, (b",", b"]", b"}", b"\n")))  # after each value stands one of these
        share = values / _PART_VALUES + len(contents[name]) / _PART_BYTES
        if part and size + share > 1:
            yield part
            part, size = [], 0.0
        part.append(name)
        size += share
    yield part


def _like_by_like(member: str) -> tuple[int, int]:
    """Streams of a kind stand together: xz looks back for what it has seen."""
    number, _, stream = member.rpartition("/")
    return (STREAMS.index(stream), int(number)) if number else (-1, (_NAMES, _LEFT_OUT, _FILES_DIGEST).index(member))


def _shortened(content: bytes, documents: str | None) -> tuple[bytes, int]:
    """A file without what follows from others, and what that was."""
    flags = 0
    if (body := without_seal(content)) is not None:
        content, flags = body, _SEALED
    found = _DIGEST.findall(content)
    if documents is not None and found == [documents.encode()] and _NO_DIGEST not in content:
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
    """Of a point; of another file the name of none."""
    return name.removesuffix(".json") + DOCUMENTS if name.endswith(".json") else ""


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


def _members(plain: bytes) -> dict[str, bytes]:
    """What stands in the archive, by name. Its headers are read one by one: `tarfile` follows extended ones, which may
    be nested without end, before anybody can refuse them.
    """
    stream = io.BytesIO(plain)
    found: dict[str, bytes] = {}
    while any(head := stream.read(tarfile.BLOCKSIZE)):
        member = tarfile.TarInfo.frombuf(head, "utf-8", "strict")
        if member.type != tarfile.REGTYPE or _MEMBER.fullmatch(member.name) is None:
            raise ValueError(
                f"member {len(found) + 1} is no stream of records; archives of earlier versions have other members, "
                f"and their runs have to be submitted again"
            )
        if member.name in found:
            raise ValueError(f"{member.name} is in it twice")
        if not 0 <= member.size <= LARGEST_FILE_BYTES:
            raise ValueError(f"it is too large: {member.size} bytes of {member.name}")
        content = stream.read(-(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)
        if len(content) < member.size or any(content[member.size :]):
            raise ValueError(f"{member.name} was cut")
        found[member.name] = content[: member.size]
    end = head + stream.read()
    if not _END_BYTES <= len(end) <= tarfile.RECORDSIZE + _END_BYTES or any(end):
        raise ValueError("it does not end where its last member does: it was cut, or something was added")
    return found
