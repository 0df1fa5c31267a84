"""Keys and digests: a key is a hash of everything that a result depends on.

Equal keys mean equal results, so nothing is computed twice. The key of a run is that of its config (`run_key`). Those
of its trainings and evaluations are put together in `runs.run_plan`, without what shapes only the speed (device,
checkpoint interval); the level that a training is for is in its key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from adaptive_bench.task import Example


def canonical(content: Any) -> str:
    """Return JSON with sorted keys and no white space, so that equal contents give equal texts."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def key_of(content: Any) -> str:
    """Return the first 16 hexadecimal digits of the sha256 of the canonical JSON."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()[:16]


def examples_fingerprint(examples: Iterable[Example]) -> str:
    """Return a digest of training or calibration text, in the given order."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(canonical([example.prompt, example.completion]).encode())
    return digest.hexdigest()[:16]


def files_fingerprint(files: Iterable[Path], home: Path | None = None) -> str:
    """Return a digest of the names and contents of files; a file below `home` counts by its path in that folder."""
    digest = hashlib.sha256()
    for file in sorted(files):
        name = file.relative_to(home).as_posix() if home is not None and file.is_relative_to(home) else file.name
        # No name has a zero byte and every digest 32 bytes, so different files never give the same bytes.
        digest.update(name.encode() + b"\0" + bytes.fromhex(file_digest(file)))
    return digest.hexdigest()[:16]


# Settings that do not change what a run is: where it is written, what it is computed on and how it is watched.
_NOT_IN_KEY = ("out", "device", "track", "preset", "for_models", "cell_timeout", "stall_warning")

# Evaluation settings that earlier versions did not have, with the value that stands for their behaviour. A setting with
# this value is left out of keys, so that results of earlier versions keep theirs.
USUAL: dict[str, Any] = {
    "temperature": None,
    "quantize": "none",
    "stop_strings": None,
    "max_new_tokens": None,
    "system_prompt": None,
    "enable_thinking": None,
    "skip_overlong": False,
}


def run_key(config: Mapping[str, Any]) -> str:
    """Return the key of a run; the run's name ends with its first digits.

    Args:
        config: The run's configuration in plain values.
    """
    values = {name: value for name, value in config.items() if name not in _NOT_IN_KEY}
    if not values.get("shuffled"):  # runs of versions without this control keep their names
        values.pop("shuffled", None)
    if values.get("eligible") == "auto":  # the default, which earlier versions did not have
        values.pop("eligible")
    if isinstance(measured := values.get("evaluation"), dict):
        values["evaluation"] = {
            name: value for name, value in measured.items() if name not in USUAL or USUAL[name] != value
        }
    if isinstance(values.get("train"), dict):
        # `parallel` says only how several processes share the memory.
        values["train"] = {name: value for name, value in values["train"].items() if name != "parallel"}
    return key_of(values)


def digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """Return the sha256 of files, by their path in a folder."""
    return {file.relative_to(folder).as_posix(): file_digest(file) for file in sorted(files)}


def changed(folder: Path, known: Mapping[str, str]) -> list[str]:
    """Return the files that are missing or whose content differs from their known digest."""
    files = {name: folder / name for name in known}
    return [name for name, file in files.items() if not file.is_file() or file_digest(file) != known[name]]


def folder_digest(folder: Path) -> str:
    """Return one digest of the names and contents of all files below a folder; modification times do not matter."""
    found = digests(folder, (file for file in folder.rglob("*") if file.is_file()))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def file_digest(file: Path) -> str:
    """Return the sha256 of a file. The file is read again only if its size, times or inode changed since last time."""
    found = file.stat()
    # The ctime as well, because tools that copy files restore the time of modification.
    return _digest(file, (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino))


@cache
def _digest(file: Path, stamp: tuple[int, ...]) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
