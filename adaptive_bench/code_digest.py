"""What the code means that makes a result: a digest of its syntax, without comments, docstrings and names of files.

It stands beside every record and decides nothing alone: records of other code with equal versions (`source.FLOORS`) are
used after a spot check (`runs.spot_check`).
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from adaptive_bench import own_code
from adaptive_bench.store import atomic

FILE = "code.json"
PARTS = ("core", "method", "tasks")  # in the order of the digest


@cache  # what is loaded does not change under a process
def code_digest(method: str, out: Path) -> str:
    """Digests of the code of this distribution that a result of a method runs through, by `PARTS` with dots between
    them: of what all methods share, of the method's own and of the tasks'.

    Args:
        method: The name that it is registered under.
        out: Output folder, where the digests of code that was read before are kept under that of its bytes: reading
            takes seconds.
    """
    core, tasks = _shared(out)
    return f"{core}.{_digest(_read(own_code.of_method(method)))}.{tasks}"


def share(out: Path) -> None:
    """Have the digests that all methods share in `out` before several processes ask for them at once."""
    _shared.__wrapped__(out)


@cache
def _shared(out: Path) -> tuple[str, str]:
    """Of the core and of all tasks."""
    parts = [_read(files) for files in (own_code.core(), own_code.of_tasks())]
    bytes_now = [
        hashlib.sha256(b"\0".join(hashlib.sha256(content).digest() for content, _ in part)).hexdigest()
        for part in parts
    ]
    try:
        known = json.loads((out / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = None
    match known:
        case {"bytes": read, "core": str(core), "tasks": str(tasks)} if read == bytes_now:
            return core, tasks
    core, tasks = map(_digest, parts)
    atomic.update_text(out / FILE, json.dumps({"bytes": bytes_now, "core": core, "tasks": tasks}) + "\n")
    return core, tasks


def _read(files: Sequence[Path]) -> list[tuple[bytes, str]]:
    """Content and kind of each."""
    return [(path.read_bytes(), path.suffix) for path in files]


def _digest(contents: Sequence[tuple[bytes, str]]) -> str:
    """Of files in any order, so that one may get another name."""
    meanings = sorted(_meaning(content) if kind == ".py" else _meaning_of_yaml(content) for content, kind in contents)
    return hashlib.sha256("\n".join(meanings).encode()).hexdigest()[:16]


@cache
def _meaning(source: bytes) -> str:
    """Digest of a file's syntax tree."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str())), *_]:
                    del node.body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


@cache
def _meaning_of_yaml(source: bytes) -> str:
    """Digest of what a parser reads, without comments and layout. Nothing that a tag names is looked up."""
    told = ("anchor", "tag", "implicit", "value")
    events = [(type(event).__name__, *(getattr(event, name, None) for name in told)) for event in yaml.parse(source)]
    return hashlib.sha256(repr(events).encode()).hexdigest()
