"""Keys: what a result depends on, as a hash. Equal keys mean equal results; that is why nothing is computed twice.

What only shapes the table (levels, the axis matched on) or only the speed (device, checkpoint interval) is in no key.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from adaptive_bench.method import method_class
from adaptive_bench.source import source_digest
from adaptive_bench.spec import MethodSpec
from adaptive_bench.task import Example


def canonical(content: Any) -> str:
    """JSON with sorted keys and no white space: one text for one meaning."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def key_of(content: Any) -> str:
    """The first 16 hexadecimal digits of the sha256 of the canonical JSON."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()[:16]


def examples_fingerprint(examples: Iterable[Example]) -> str:
    """Digest of training or calibration text in the order it was given."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(canonical([example.prompt, example.completion]).encode())
    return digest.hexdigest()[:16]


def files_fingerprint(files: Iterable[Path]) -> str:
    """Digest of files' names and contents."""
    digest = hashlib.sha256()
    for file in sorted(files):
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").digest()
        digest.update(file.name.encode() + b"\0" + content)
    return digest.hexdigest()[:16]


def code_digest(spec: MethodSpec, *, work: Literal["training", "evaluation", "model/timing"]) -> str:
    """Digest of the source a result depends on: the method's file, the floors from the backbone to the model, and what
    trains, evaluates or times.
    """
    return source_digest(Path(inspect.getfile(method_class(spec))), work)
