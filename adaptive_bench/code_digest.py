"""What the code means that makes a result: a digest of its syntax, without comments, docstrings and names of files.

It stands beside every record and decides nothing alone: records of other code with equal versions (`source.FLOORS`) are
used after a spot check (`runs.spot_check`).
"""

from __future__ import annotations

import ast
import hashlib
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from adaptive_bench import registry
from adaptive_bench.closure import imports_of_own
from adaptive_bench.store import atomic

FILE = "code.json"
# What they hold moves no record; of methods each has a digest of its own.
_NO_RESULT = {"cli", "configs", "docs.py", "leaderboard", "methods", "store/results.py", "tables", "testing", "tuning"}


@cache  # what is loaded does not change under a process
def code_digest(method: str, out: Path) -> str:
    """Digests of the code of this distribution that a result of a method runs through: of what all methods share, and
    after a dot of the method's own.

    Args:
        method: The name that it is registered under.
        out: Output folder, where the digest of code that was read before is kept under that of its bytes: reading takes
            seconds.
    """
    file = registry.file_of("methods", method)
    own = imports_of_own(file) if file is not None and not registry.is_foreign("methods", method) else ()
    methods = _home("adaptive_bench.methods")
    text = "\n".join(_meaning((methods / f"{stem}.py").read_bytes()) for stem in sorted(own))
    return f"{_core(out)}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@cache
def _core(out: Path) -> str:
    home, tasks = _home("adaptive_bench"), _home("adaptive_bench.tasks")
    places = (path.relative_to(home) for path in home.rglob("*.py"))
    files = [home / file for file in places if _NO_RESULT.isdisjoint((file.parts[0], file.as_posix()))]
    contents = [file.read_bytes() for file in sorted({*files, *tasks.rglob("*.py")})]
    read = hashlib.sha256(b"\0".join(hashlib.sha256(content).digest() for content in contents)).hexdigest()
    try:
        known = json.loads((out / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = None
    if isinstance(known, dict) and known.get("bytes") == read and isinstance(known.get("code"), str):
        return str(known["code"])
    code = hashlib.sha256("\n".join(sorted(map(_meaning, contents))).encode()).hexdigest()[:16]
    atomic.update_text(out / FILE, json.dumps({"bytes": read, "code": code}) + "\n")
    return code


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


def _home(package: str) -> Path:
    found = find_spec(package)
    assert found is not None and found.origin is not None
    return Path(found.origin).parent
