"""Keys and digests: a key is a hash of everything that a result depends on.

Equal keys mean equal results, so nothing is computed twice. The key of a run is that of its config (`run_key`). Those
of its trainings and evaluations are put together in `runs.run_plan`, without what shapes only the speed (device,
checkpoint interval); the level that a training is for is in its key.

The code that a result depends on enters keys by versions, and for plugins by digests of their files. Code of this
distribution has a version for each floor (layer of the package), and one for each method. Whoever changes what the code
computes raises the version; a change that moves no number leaves it. The golden outputs check this (`tests/golden`):
they fail if a number moved but its version did not.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os.path
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, Literal

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.task import Example

# Raise the version of a floor when its outputs change.
FLOORS = {
    "backbone": 1,
    "method": 1,
    "engine": 1,
    "model": 1,
    "dials": 2,  # in version 1, solving for a dial stopped up to half a point away from the saving
    "training": 1,
    "evaluation": 1,
    "timing": 1,
    "tasks": 1,
}
# Version of how tables are made from records: matching, intervals, tests. Raise it when the same records give other
# tables; no record depends on it.
TABLES = 2
_UNDER = ("backbone", "method", "engine", "model")
_OWN, _METHODS = "adaptive_bench", "adaptive_bench.methods"
# Found in a method's file: its version (1 if it has none), and whether its dial is solved for, which is a floor of its
# own.
_VERSION, _SOLVES = re.compile(r"^VERSION = (\d+)", re.MULTILINE), re.compile(r"^    solves_dial = ", re.MULTILINE)
_HOME, _INSTALLED = Path(__file__).resolve().parents[1], {"site-packages", "dist-packages"}
_loaded: dict[Path, str] = {}  # digests of plugins' Python files when they were first digested
Work = Literal["training", "evaluation", "timing"]


def canonical(content: Any) -> str:
    """Return JSON with sorted keys and no white space, so that equal contents give equal texts."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def key_of(content: Any) -> str:
    """Return the first 16 hexadecimal digits of the sha256 of the canonical JSON."""
    return _short(canonical(content))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
    """Return the key of a run's configuration in plain values; the run's name ends with its first digits."""
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
    return _short(json.dumps(found))


def file_digest(file: Path) -> str:
    """Return the sha256 of a file. The file is read again only if its size, times or inode changed since last time."""
    found = file.stat()
    # The ctime as well, because tools that copy files restore the time of modification.
    return _sha256(file, (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino))


@cache
def _sha256(file: Path, stamp: tuple[int, ...]) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def code_behind(method: str, work: Work) -> dict[str, Any]:
    """Return the code that a result of a registered method depends on: the versions of the floors below it and of the
    work itself, the versions of this distribution's methods that it is built on, and for a plugin the digest of its
    files, see `plugin_digest`.
    """
    registry.check_name("methods", method)
    file = registry.file_of("methods", method)
    versions: dict[str, Any] = {floor: FLOORS[floor] for floor in (*_UNDER, work)}
    if file is not None and not registry.is_foreign("methods", method):
        own = _own_methods(file.parent, {file.stem})
        solves = any(_SOLVES.search(path.read_text(encoding="utf-8")) for path in own)
        dials = {"dials": FLOORS["dials"]} if solves else {}
        return versions | dials | {"methods": {path.stem: _version(path) for path in own}}
    versions["dials"] = FLOORS["dials"]
    found = registry.get("methods", method)
    if file is None:  # for example, the class is defined in a notebook
        return versions | {"source": class_digest(found)}
    modules = {one.__module__ for one in getattr(found, "__mro__", ())}
    others = {name for name in modules if name.partition(".")[0] not in {_OWN, *sys.stdlib_module_names}}
    bases = [Path(where) for name in others if (where := getattr(sys.modules.get(name), "__file__", None)) is not None]
    files = _files(file, *(one for one in bases if not _INSTALLED & set(one.parts)))
    modules |= {name for one in files if one.suffix == ".py" for name in _mentioned(one)[0]}
    ours = importlib.util.find_spec(_METHODS)
    assert ours is not None and ours.origin is not None
    own = _own_methods(Path(ours.origin).parent, _among_methods(modules))
    return versions | {"methods": {path.stem: _version(path) for path in own}, "source": _digest(files)}


def plugin_digest(files: Iterable[Path]) -> str:
    """Return a digest of some Python files of a plugin and of everything that belongs to them, wherever they lie: the
    whole package that a file is part of, or else the modules and packages beside it that it imports, and the files that
    its strings name by a path from its folder.

    Raises:
        EnvironmentProblem: A Python file changed since this process first digested it, so the loaded code is older.
    """
    return _digest(_files(*files))


def check_code(method: str, work: Work, planned: Mapping[str, Any]) -> None:
    """Refuse to work for a plan that was made with other code: a worker process loads its plugins after the plan was
    made.
    """
    if code_behind(method, work) != planned:
        raise EnvironmentProblem(
            f"A run does its work with the code that it planned with, but that of {method!r} changed since. Give the "
            f"same command again: it plans with the present code."
        )


def code_of(method: str) -> str | None:
    """Return a digest of the code that trains and evaluates a registered method; `None` if it is not registered."""
    if method not in registry.names("methods"):
        return None
    return code_digest(code_behind(method, "training"), code_behind(method, "evaluation"))


def code_digest(training: Mapping[str, Any], evaluation: Mapping[str, Any]) -> str:
    """Return one digest of what `code_behind` gives for the training and for the evaluation of a method."""
    return _short(json.dumps([training, evaluation], sort_keys=True))


@cache
def commit() -> dict[str, str]:
    """Return the commit of the checkout that this code lies in, with `-dirty` if files were edited; empty if none."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        # Fails unless this file is tracked: a package installed below some other checkout is not part of it.
        subprocess.run([*git, "ls-files", "--error-unmatch", __file__], check=True, capture_output=True)
        asked = [*git, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
        return {"commit": subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()}
    except (OSError, subprocess.CalledProcessError):
        return {}


def class_digest(found: type) -> str:
    """Return a digest of a class that has no file, as in a notebook: of the byte code of its functions and the values
    of its attributes, including those of its base classes outside of this distribution.
    """
    known = {_OWN, "builtins", "torch", *sys.stdlib_module_names} - {"__main__"}
    own = [one for one in found.__mro__ if one.__module__.partition(".")[0] not in known]
    return _short(";".join(f"{name}={_said(value)}" for one in own for name, value in sorted(vars(one).items())))


def _said(value: object) -> str:
    inner = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
    if isinstance(inner, type):
        return class_digest(inner)
    if is_dataclass(inner):  # a dial, for example
        return f"{type(inner).__name__} {[_said(getattr(inner, one.name)) for one in fields(inner)]}"
    if isinstance(inner, frozenset):  # its own order differs between processes
        return f"frozenset {sorted(map(_said, inner))}"
    code = inner if isinstance(inner, CodeType) else getattr(inner, "__code__", None)
    if code is None:
        return repr(inner) if isinstance(inner, str | int | float | tuple | None) else type(inner).__name__
    consts = [_said(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {consts} {getattr(inner, '__defaults__', None)!r}"


def _own_methods(home: Path, waiting: set[str]) -> list[Path]:
    """Return the files of this distribution's methods, and of the methods and helpers that they import."""
    found: set[Path] = set()
    while waiting:
        path = home / f"{waiting.pop()}.py"
        if path.is_file() and path not in found:
            found.add(path)
            waiting |= _among_methods(name.replace("..", f"{_METHODS}.") for name in _mentioned(path)[0])
    return sorted(found)


def _version(file: Path) -> int:
    said = _VERSION.search(file.read_text(encoding="utf-8"))
    return 1 if said is None else int(said[1])


def _among_methods(modules: Iterable[str]) -> set[str]:
    return {name.split(".")[2] for name in modules if name.startswith(f"{_METHODS}.")}


def _digest(files: Iterable[Path]) -> str:
    """Return a digest of the files' contents alone, since a plugin may lie anywhere, under any name."""
    now = {file: file_digest(file) for file in files}
    edited = [file for file in now if file.suffix == ".py" and _loaded.setdefault(file, now[file]) != now[file]]
    if edited:
        raise EnvironmentProblem(
            f"Python runs a plugin as it was when it was loaded, but {', '.join(map(str, sorted(edited)))} changed "
            f"since. Start Python again (in a notebook: the kernel), and give the same command again."
        )
    return _short(" ".join(sorted(now.values())))


@cache  # a plan may have thousands of cells
def _files(*starts: Path) -> frozenset[Path]:
    """Return the files that belong to some files of a plugin, see `plugin_digest`."""
    found: set[Path] = set()
    waiting = [path.resolve() for path in starts]
    while waiting:
        path = waiting.pop()
        if path in found or path.is_relative_to(_HOME):  # a program may register an object of a class of this package
            continue
        found.add(path)
        if path.suffix != ".py":
            continue
        modules, named = _mentioned(path)
        home = path.parent
        if (home / "__init__.py").is_file():
            while (home.parent / "__init__.py").is_file():
                home = home.parent
            waiting += [one for one in home.rglob("*") if one.is_file() and "__pycache__" not in one.parts]
            home = home.parent
        beside = {name.partition(".")[0] for name in modules} - {_OWN} if home.name not in _INSTALLED else set()
        places = [place for name in beside for place in (home / f"{name}.py", home / name / "__init__.py")]
        waiting += [place for one in (*places, *named) if (place := one.resolve()).is_file()]
    return frozenset(found)


@cache
def _mentioned(file: Path) -> tuple[frozenset[str], frozenset[Path]]:
    """Return the modules a Python file may import, relative ones with two dots in front; and the files it names."""
    modules: set[str] = set()
    named: set[Path] = set()
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # importing the file reports this
        return frozenset(), frozenset()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = ".." * bool(node.level) + (f"{node.module}." if node.module else "")
            modules |= {f"{start}{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named |= set() if os.path.isabs(node.value) else {file.parent / node.value}  # noqa: PTH117
    # `os.path.isfile` is `False` for texts that are no paths.
    return frozenset(modules), frozenset(path for path in named if os.path.isfile(path))  # noqa: PTH113
