"""Records in one file, to be passed on: everything a table is made of, without weights, logs and names of machines.

An archive is untrusted input: a member that is not a plain file of a record under a known name, or that is too large,
rejects all of it, and nothing it names leads outside the folder of records.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from lzma import LZMAError, LZMAFile
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store import atomic
from adaptive_bench.store.digest import sealed
from adaptive_bench.store.files import Files, files_of
from adaptive_bench.store.records import WITHOUT_WEIGHTS, Record
from adaptive_bench.store.schema import SCHEMA

LARGEST_UNPACKED_BYTES = 2_000_000_000
LARGEST_FILE_BYTES = 50_000_000
MOST_FILES = 500_000
_OF_A_MACHINE = ("machine", "system")
_NAME = re.compile(
    r"[0-9a-f]{8,64}/"
    r"(eval/[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,200}-[0-9a-f]{8,64}/)?"
    r"((config|env|status|data|cost|target|timing|dial|calibration|behaviour|files_read)\.json|train\.jsonl"
    r"|[0-9]{1,12}(\.[0-9]{1,12})?(\.json|\.samples\.jsonl))",
    re.ASCII,
)


@dataclass(frozen=True)
class Unpacked:
    """What became of an archive.

    Attributes:
        written: Records that are new.
        known: Records that were there already, and stay as they are.
    """

    written: int
    known: int


class _Bounded(LZMAFile):
    """Gives no more at a time than a file of a record may have, whatever a header asks for."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= LARGEST_FILE_BYTES:
            raise ValueError(f"a piece of {size} bytes is too large")
        return super().read(size)


def pack(records: Iterable[Path]) -> bytes:
    """Records as a `.tar.xz`; the same records give the same bytes.

    Args:
        records: Their folders. What is not done of them is left out.

    Raises:
        UsageError: Nothing is done in any of them.
    """
    done = [folder for folder in sorted(records) if Record(folder).state == "done"]
    if not done:
        raise UsageError("Records that are done can be packed, but there is none. Give the run's command first.")
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for folder in done:
            for name, content in _files(folder):
                content = _anonymous(content) if name.endswith("/env.json") else content
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, BytesIO(content))
    return packed.getvalue()


def unpack(file: Path, out: Path) -> Unpacked:
    """Put the records of an archive into an output folder, where a run of the same configuration finds them done.

    Raises:
        EnvironmentProblem: It is no such archive, or breaks a rule; no record of it was written then, but for those
            before the one that does.
    """
    written = known = 0
    try:
        with _Bounded(file) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for record, members in groupby(_checked(archive), key=lambda member: member.name.split("/")[0]):
                target = out / "records" / record
                if target.exists():
                    known += 1
                    continue
                with atomic.new_folder(target) as folder:
                    for member in members:
                        path = folder.joinpath(*member.name.split("/")[1:])
                        path.parent.mkdir(parents=True, exist_ok=True)
                        content = archive.extractfile(member)
                        assert content is not None  # it is a plain file
                        path.write_bytes(content.read())
                    atomic.write_json(folder / WITHOUT_WEIGHTS, {"schema": SCHEMA})
                written += 1
    except (OSError, EOFError, LZMAError, tarfile.TarError, ValueError) as error:
        raise EnvironmentProblem(
            f"Packed records are a .tar.xz that `leaderboard submit --records` wrote, but {str(file)!r} cannot be read "
            f"as one ({type(error).__name__}: {error}). Fetch it again."
        ) from error
    return Unpacked(written, known)


def _files(record: Path) -> Iterator[tuple[str, bytes]]:
    """What is passed on of a record, by its place in the archive: of sweeps only those that are done."""
    folders = [record, *(sweep for sweep in record.glob("eval/*") if Record(sweep).state == "done")]
    for path in sorted(folder / name for folder in folders for name in Files(folder).names()):
        name = f"{record.name}/{path.relative_to(record).as_posix()}"
        if _NAME.fullmatch(name) and (content := files_of(path.parent).content(path.name)) is not None:
            yield name, content


def _anonymous(environment: bytes) -> bytes:
    values = json.loads(environment)
    kept = {key: value for key, value in values.items() if key not in (*_OF_A_MACHINE, "content_sha256")}
    return sealed(json.dumps(kept, indent=2)).encode()


def _checked(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    total = 0
    for number, member in enumerate(archive, 1):
        total += member.size
        if not member.isreg() or _NAME.fullmatch(member.name) is None:
            raise ValueError(f"member {number} is no file of a record")
        if number > MOST_FILES or member.size > LARGEST_FILE_BYTES or total > LARGEST_UNPACKED_BYTES:
            raise ValueError(f"it is too large: {number} files, {total} bytes")
        yield member
