"""The code that results depend on, as digests of its files. Nothing is imported for it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from adaptive_bench import registry

# Below what trains, evaluates or times: the floors from the backbone to the model.
_FLOORS = ("backbone", "backbone/families", "method", "engine", "model")


@cache  # a plan may have thousands of cells, and the code that runs does not change under it
def source_digest(method: Path, work: str) -> str:
    """Digest of a method's file, the floors from the backbone to the model, and the folder that does the work."""
    core = Path(__file__).parent
    digest = hashlib.sha256(method.read_bytes())
    for part in (*_FLOORS, work):
        for file in sorted(core.glob(f"{part}/*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def code_of(method: str) -> str | None:
    """Digest of what trains and evaluates a method, by the name it is registered under; `None` if it is not there."""
    file = registry.file_of("methods", method)
    if file is None:
        return None
    both = "".join(source_digest(file, work) for work in ("training", "evaluation"))
    return hashlib.sha256(both.encode()).hexdigest()[:16]
