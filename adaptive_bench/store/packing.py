"""Records in one file, to be passed on: everything a table is made of, without weights, logs and names of machines.
The timings that a finished run used are in it too, below `time/`.

An archive is untrusted input: a name that is not of a file of a record, or a file that is not what was written, rejects
all of it, and nothing it names leads outside the folder of records.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from lzma import LZMAError
from pathlib import Path, PurePath

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store import atomic, seals, timings
from adaptive_bench.store.archive import archived, files_in
from adaptive_bench.store.digest import is_intact, sealed
from adaptive_bench.store.files import DOCUMENTS, OURS, Files, files_of
from adaptive_bench.store.manifest import Manifest
from adaptive_bench.store.records import WITHOUT_WEIGHTS, Record
from adaptive_bench.store.schema import SCHEMA

_OF_A_MACHINE = ("machine", "system")
_SHOWN = 100  # characters of a name
_STRANGE = re.compile(r"[^A-Za-z0-9_.:/\-]")  # whoever packed it chose them, and what is said of it goes to a page
_NAME = re.compile(
    r"[0-9a-f]{8,64}/"
    r"(eval/[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,200}-[0-9a-f]{8,64}/)?" + OURS,
    re.ASCII,
)
_TIMING = re.compile(timings.FOLDER + r"/[0-9a-f]{8,64}\.json", re.ASCII)


@dataclass(frozen=True)
class Unpacked:
    """What became of an archive.

    Attributes:
        written: Records that are new.
        known: Records that were there already, and stay as they are.
        different: Files of those that are not what the archive has, each with how.
    """

    written: int
    known: int
    different: tuple[str, ...] = ()


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
    return _archive(file for folder in done for file in _files(folder))


def pack_run(listed: Manifest) -> bytes:
    """As `pack`, of the files that a finished run ended with. What another run does in a record that both have, or did
    there since, is not passed on.

    Args:
        listed: The run's list, with seals.

    Raises:
        EnvironmentProblem: A file is not what it was when the run ended.
    """
    listed.check(deep=True)
    return _archive(chain(_sealed_files(listed), _timings(listed)))


def unpack(
    file: Path,
    out: Path,
    sha256: str | None = None,
    records: Collection[str] | None = None,
    *,
    lasting: bool = True,
) -> Unpacked:
    """Put the records of an archive into an output folder, where a run of the same configuration finds them done.

    Args:
        sha256: Of the archive, where somebody says what it is; in hexadecimal digits.
        records: The records that it must have, and no others, where somebody says which.
        lasting: Whether they are to be there after a loss of power; not so where they are read and removed.

    Raises:
        EnvironmentProblem: It is no such archive or another one, breaks a rule, or holds a file that is not what was
            written; nothing of it was written then.
    """
    try:
        if sha256 is not None and _sha256(file) != sha256:
            raise ValueError("its digest is not the one in the entry.json beside it")
        with atomic.temporary_folder(out / "unpacked") as folder:
            for name, content in files_in(file, lambda name: _check_name(name, records)):
                place = folder.joinpath(*name.split("/"))
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            found = sorted(place.name for place in folder.iterdir() if place.name != timings.FOLDER)
            if missing := sorted({*(records or ())} - {*found}):
                raise ValueError(f"{len(missing)} record(s) of its run are not in it, the first: {missing[0]}")
            for record in found:
                _check_digests(folder / record, record)
            return _put(folder, found, out, lasting=lasting)
    except (OSError, EOFError, LZMAError, tarfile.TarError, ValueError) as error:
        raise EnvironmentProblem(
            f"Packed records are a .tar.xz that `leaderboard submit --records` wrote, but {str(file)!r} cannot be read "
            f"as one ({type(error).__name__}: {error}). Fetch it again."
        ) from error


def _check_name(name: str, records: Collection[str] | None) -> None:
    """Refuse what is no file of a record, or of a record that nobody asked for."""
    if _TIMING.fullmatch(name):
        return
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{_STRANGE.sub('?', name[:_SHOWN])!r} is no file of a record")
    record = name.partition("/")[0]
    if records is not None and record not in records:
        raise ValueError(f"{record} is no record of its run")


def _put(folder: Path, records: Iterable[str], out: Path, *, lasting: bool) -> Unpacked:
    """Put what was unpacked and holds where it belongs. What is there already stays."""
    targets = {record: out / "records" / record for record in records}
    known = {record: target for record, target in targets.items() if target.exists()}
    new = {record: target for record, target in targets.items() if record not in known}
    # What is there may be unreadable: that is found before the first is put.
    different = [found for record, target in known.items() for found in _different(folder / record, target)]
    different += _put_timings(folder / timings.FOLDER, out / timings.FOLDER)
    for record, target in new.items():
        with atomic.new_folder(target, lasting=lasting) as place:
            for piece in (folder / record).iterdir():
                piece.rename(place / piece.name)
            atomic.write_json(place / WITHOUT_WEIGHTS, {"schema": SCHEMA})
    return Unpacked(len(new), len(known), tuple(different))


def _put_timings(folder: Path, target: Path) -> Iterator[str]:
    """Each is checked before the first is put."""
    contents = {place.name: place.read_bytes() for place in sorted(folder.glob("*"))}
    for name, content in contents.items():
        if not is_intact(content):
            raise ValueError(f"{timings.FOLDER}/{name} changed since it was written")
    for name, content in contents.items():
        if not (target / name).exists():
            atomic.write_bytes(target / name, content)
        elif (target / name).read_bytes() != content:
            yield f"{target / name} is another one"


def _archive(files: Iterable[tuple[str, bytes]]) -> bytes:
    return archived((name, _anonymous(content) if name.endswith("/env.json") else content) for name, content in files)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _folders(record: Path) -> list[Path]:
    return [record, *sorted(record.glob("eval/*"))]


def _check_digests(record: Path, name: str) -> None:
    """Refuse what changed since it was written: files, and documents of points. Early versions wrote no digests, and
    what has none is used nowhere (see `Files.read`).
    """
    for folder in _folders(record):
        files = Files(folder)
        changed = [file for file in files.damaged() if b'"content_sha256"' in (files.content(file) or b"")]
        for file in files.names():
            if file.endswith(DOCUMENTS):
                point = files.read(file.removesuffix(DOCUMENTS) + ".json")
                known = None if point is None else point.get("samples_sha256")
                if known is not None and known != hashlib.sha256(files.content(file) or b"").hexdigest():
                    changed.append(file)
        if changed:
            place = "/".join((name, *folder.relative_to(record).parts, changed[0]))
            raise ValueError(f"{place} changed since it was written")


def _different(unpacked: Path, there: Path) -> Iterator[str]:
    for folder in _folders(unpacked):
        place = there / folder.relative_to(unpacked)
        for found in seals.broken(Files(place), seals.seals_of(Files(folder))):
            yield f"{place / found.name} {found.how if found.how == 'is missing' else 'is another one'}"


def _files(record: Path) -> Iterator[tuple[str, bytes]]:
    """What is passed on of a record, by its place in the archive: of sweeps only those that are done."""
    folders = [record, *(sweep for sweep in record.glob("eval/*") if Record(sweep).state == "done")]
    for path in sorted(folder / name for folder in folders for name in Files(folder).names()):
        name = f"{record.name}/{path.relative_to(record).as_posix()}"
        if _NAME.fullmatch(name) and (content := files_of(path.parent).content(path.name)) is not None:
            yield name, content


def _sealed_files(listed: Manifest) -> Iterator[tuple[str, bytes]]:
    """Those of a finished run, by their place in the archive. They are done, whoever is at their records now."""
    for place, name in sorted((record, name) for record in listed.records for name in listed.seals_of(record)):
        files = files_of(listed.out / "records" / place)
        content = files.content(name)
        if name == "status.json" and (status := files.read(name)) is not None and status["state"] != "done":
            content = sealed(json.dumps(status | {"state": "done", "reason": ""}, indent=2)).encode()
        if content is not None and _NAME.fullmatch(f"{place}/{name}"):
            yield f"{place}/{name}", content


def _timings(listed: Manifest) -> Iterator[tuple[str, bytes]]:
    """Those that the table was made with, by their place in the archive; a folder a model was read from is its name."""
    for name in sorted(listed.timings):
        path = listed.out / timings.FOLDER / name
        if (record := timings.read(path)) is not None:
            model = PurePath(str(record.get("model", "")))
            named = record | ({"model": model.name} if model.is_absolute() else {})
            yield f"{timings.FOLDER}/{name}", sealed(json.dumps(named, indent=2)).encode()


def _anonymous(environment: bytes) -> bytes:
    values = json.loads(environment)
    kept = {key: value for key, value in values.items() if key not in (*_OF_A_MACHINE, "content_sha256")}
    return sealed(json.dumps(kept, indent=2)).encode()
