"""What the records of an entry come to, made once for each entry and each version of what makes it.

It is kept in the cache of whoever builds, never beside the entry: an author cannot put it there. What is kept are the
values that the records give, and which tasks scored the answers again; an entry is held to these values whenever a
board is built.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock

from adaptive_bench import registry
from adaptive_bench.data import data_root
from adaptive_bench.errors import UsageError
from adaptive_bench.source import FLOORS, TABLES
from adaptive_bench.store import atomic
from adaptive_bench.store.manifest import PACKED as MANIFEST
from adaptive_bench.store.results import ENTRY, PACKED_RECORDS, RUN

from .recorded import recorded

_READ = (PACKED_RECORDS, "config.yaml", RUN, MANIFEST)
_FORM = 8  # of what is kept; raise it when `derive` gives something else


def derive(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of `runs.rederive.Derived` of an entry in plain values, with what `recorded` sees in its records; of
    sources those of plugins, by spec.

    Args:
        config: Its `config.yaml`.

    Raises:
        AdaptiveBenchError: The records are damaged, not of this run, or not complete; or a task of theirs is not here.
    """
    place = _place(folder)
    if (kept := _kept(place)) is not None:
        return kept
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):  # what another process is at for a minute is waited for, not made twice
        if (kept := _kept(place)) is None:
            kept = _derive(folder, config)
            content = lzma.compress(json.dumps(kept, separators=(",", ":")).encode(), preset=1)
            atomic.write_bytes(place, content)
        return kept


def _derive(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError

    from adaptive_bench.config import RunConfig
    from adaptive_bench.runs.rederive import derive as from_records
    from adaptive_bench.validation import rule_of

    try:
        run = RunConfig.model_validate({**config, "out": folder, "device": "cpu"})
    except ValidationError as error:
        raise UsageError(
            f"An entry's config.yaml is a run's, but this one has {error.error_count()} wrong value(s), the first: "
            f"{rule_of(error.errors()[0])}. Submit the run again."
        ) from error
    found = from_records(run, folder / PACKED_RECORDS, recorded)
    sources = {
        spec: str(one["code"]["source"])[:16]
        for spec, trainings in found.recipes.items()
        for one in trainings
        if isinstance(one.get("code"), dict) and "source" in one["code"]
    }
    return {
        "rows": found.rows,
        "answers": found.answers,
        "methods": found.methods,
        "warnings": found.warnings,
        "environments": found.environments,
        "unprojected": list(found.unprojected),
        "sealed": found.sealed,
        "unscored": dict(found.unscored),
        "sources": sources,
        "recorded": found.seen,
    }


def _place(folder: Path) -> Path:
    """Where it is kept: by the digests of all that `rederive.derive` reads, and by what makes it."""
    files = json.loads((folder / ENTRY).read_text(encoding="utf-8"))["files"]
    made_by = {
        "form": _FORM,
        "files": {name: files.get(name) for name in _READ},
        "version": version("adaptive-bench"),
        "tables": TABLES,
        "floors": FLOORS,
        "known": [sorted(registry.names(kind)) for kind in ("methods", "tasks")],
        "lm-eval": version("lm-eval"),
        "data": _local_data(),
    }
    key = hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "adaptive-bench" / "entries" / f"{key}.json.xz"


def _local_data() -> list[list[Any]]:
    """Files of the local data folder, each by its path, size and time of change."""
    root = data_root(None)
    files = sorted(path for path in root.rglob("*") if path.is_file()) if root is not None else []
    return [[str(path), (about := path.stat()).st_size, about.st_mtime_ns] for path in files]


def _kept(place: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(lzma.decompress(place.read_bytes()))
    except (OSError, ValueError, EOFError, lzma.LZMAError):  # not there, or cut: it is made again
        return None
    return found
