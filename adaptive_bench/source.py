"""What a number depends on beside its inputs: the code, as versions and, of plugins, as their source.

Code of this distribution has a version for each floor, and one for each method. Whoever changes what it computes raises
the version; a change that moves no number leaves it, whatever it does to the text. Golden outputs hold that
(`tests/golden`): they fail where a number moved and its version did not.

Nothing is imported for it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from adaptive_bench import registry
from adaptive_bench.closure import check_loaded, class_digest, closure, imports_of_own
from adaptive_bench.errors import EnvironmentProblem

# Raise one when its outputs move.
FLOORS = {
    "backbone": 1,
    "method": 1,
    "engine": 1,
    "model": 1,
    "dials": 1,
    "training": 1,
    "evaluation": 1,
    "timing": 1,
    "tasks": 1,
}
# Of what is made of records: matching, intervals, tests. Raise it when the same records give other tables; no record
# depends on it.
TABLES = 1
_UNDER = ("backbone", "method", "engine", "model")
_DIALS = "dials"  # how dials are solved for: under methods that say `solves_dial`, and under plugins
_VERSION = "VERSION"  # of a method, at the top of its file; 1 where there is none
Work = Literal["training", "evaluation", "timing"]


def code_behind(method: str, work: Work) -> dict[str, Any]:
    """What a result of a method depends on: versions of the floors under it and of the work itself; of the methods of
    this distribution that it is built on their versions, and of a plugin the digest of its source.

    Args:
        method: The name that it is registered under.

    Raises:
        UsageError: Nobody registered that name.
    """
    registry.check_name("methods", method)
    file = registry.file_of("methods", method)
    versions: dict[str, Any] = {floor: FLOORS[floor] for floor in (*_UNDER, work)}
    own_methods = {} if file is None or registry.is_foreign("methods", method) else imports_of_own(file)
    if not own_methods or any(map(_solves_dial, own_methods.values())):
        versions[_DIALS] = FLOORS[_DIALS]
    if file is None:  # defined in a notebook, say
        return versions | {"source": class_digest(registry.get("methods", method))}
    if own_methods:
        return versions | {"methods": {name: _version(path) for name, path in own_methods.items()}}
    source, files, own = closure(file)
    home = _home_of_own()
    return versions | {
        "methods": {stem: _version(home / f"{stem}.py") for stem in own if (home / f"{stem}.py").is_file()},
        "source": source,
        **({"files": files} if files else {}),
    }


def check_code(method: str, work: Work, planned: Mapping[str, Any]) -> None:
    """Refuse to work for a plan with other code than it was made with: a worker loads its plugins later than that.

    Raises:
        EnvironmentProblem: The code is other code.
    """
    now = code_behind(method, work)
    made = now.pop("files", {})  # some may have been made since, by the plugin itself
    if (known := planned.get("files")) is not None:
        now["files"] = {name: made.get(name) for name in known}
    if now != planned:
        raise EnvironmentProblem(
            f"A run does its work with the code that it planned with, but that of {method!r} changed since. Give the "
            f"same command again: it plans with what is there now."
        )


def check_plugin(method: str) -> None:
    """Refuse to plan with a plugin that was edited since this process loaded it.

    Raises:
        EnvironmentProblem: It was.
    """
    file = registry.file_of("methods", method)
    if file is not None and registry.is_foreign("methods", method):
        check_loaded(file)


def code_of(method: str) -> str | None:
    """Digest of what trains and evaluates a method, by the name it is registered under; `None` if it is not there."""
    if method not in registry.names("methods"):
        return None
    return code_digest(code_behind(method, "training"), code_behind(method, "evaluation"))


def code_digest(training: Mapping[str, Any], evaluation: Mapping[str, Any]) -> str:
    """One digest of what `code_behind` gives for the training and for the evaluation of a method."""
    text = json.dumps([training, evaluation], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def commit() -> dict[str, str]:
    """The commit of the checkout that this code lies in, `-dirty` behind it where files were edited; else nothing."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", __file__], check=True, capture_output=True)  # it is ours
        asked = [*git, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
        return {"commit": subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()}
    except (OSError, subprocess.CalledProcessError):
        return {}


def _home_of_own() -> Path:
    """The folder of the methods of this distribution."""
    import importlib.util

    found = importlib.util.find_spec("adaptive_bench.methods")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


@cache
def _version(file: Path) -> int:
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == _VERSION:
            return int(ast.literal_eval(node.value))
    return 1


@cache
def _solves_dial(file: Path) -> bool:
    """Whether a method's dial may be solved for, by its source."""
    return any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "solves_dial"
        for node in ast.walk(ast.parse(file.read_bytes()))
    )
