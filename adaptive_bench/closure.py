"""The source that code outside this distribution runs through: its file, all it imports, and the files that these name,
as digests of bytes.

Nothing is imported for it. Other packages among the site packages are left out, and so is the standard library. A file
that looks other code up by name while it runs (in the registry, with `importlib`) may run through any plugin, so that
all of them are taken in. A file is named by a text in the source that is a path from the source's folder.
"""

from __future__ import annotations

import ast
import hashlib
import os.path
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store.digest import file_digest

_OWN = "adaptive_bench"
_LOOKS_UP = {"registry", "importlib", "__import__", "exec", "eval", "runpy", "modules", "method_class"}
_INSTALLED = {"site-packages", "dist-packages"}


def closure(file: Path) -> tuple[str, dict[str, str], frozenset[str]]:
    """What a file of a plugin runs through.

    Returns:
        Digest of the source outside this distribution, wherever it lies; digests of the files that this names, by their
        path from the file, as they are now: they are read while it runs; and the methods of this distribution that it
        builds on, by the names of their files.
    """
    code, named, own = _walked(file)
    home = file.resolve().parent
    now = {os.path.relpath(path, home): file_digest(path) if path.is_file() else "" for path in named}
    return hashlib.sha256("\n".join(sorted(code.values())).encode()).hexdigest()[:16], now, own


def in_key(file: Path) -> tuple[frozenset[Path], frozenset[Path]]:
    """Files of a plugin that are part of a key: those of the source that it runs through, and those that this names."""
    code, named, _ = _walked(file)
    return frozenset(code), frozenset(named)


def check_loaded(file: Path, *, data: bool = True) -> None:
    """Refuse to go on with code that is not the code on disk any more: it was loaded when `closure` was first asked.

    Args:
        data: The same for files that the code names.

    Raises:
        EnvironmentProblem: A file that this one runs through changed since.
    """
    code, named, _ = _walked(file)
    loaded = code | named if data else code
    edited = [path for path, known in loaded.items() if not path.is_file() or file_digest(path) != known]
    if edited:
        raise EnvironmentProblem(
            f"Python runs a plugin as it was when it was loaded, but {', '.join(map(str, sorted(edited)))} changed "
            f"since. Start Python again (in a notebook: the kernel), and give the same command again."
        )


@cache  # a plan may have thousands of cells, and what is loaded does not change under it
def _walked(file: Path) -> tuple[dict[Path, str], dict[Path, str], frozenset[str]]:
    """Digests of the code outside this distribution and of files it names, and the methods of this distribution."""
    sources: dict[Path, str] = {}
    named: dict[Path, str] = {}
    own: set[str] = set()
    waiting = [file.resolve()]
    home = _package(waiting[0])
    while waiting:
        path = waiting.pop()
        if path in sources:
            continue
        content = path.read_bytes()
        sources[path] = hashlib.sha256(content).hexdigest()
        names, looks_up, files = _imported(content, path)
        named |= {found: file_digest(found) for found in files}
        own |= {name.split(".")[2] for name in names if name.startswith(f"{_OWN}.methods.")}
        waiting += [found for name in names if (found := _file(name, path, home)) is not None]
        if looks_up:
            waiting += _plugins()
    return sources, named, frozenset(own)


@cache
def own_files(file: Path) -> frozenset[Path]:
    """What one of this distribution's methods runs through beside the core: its file, and the methods and helpers that
    it imports, in folders of their own too.
    """
    home = file.resolve().parent
    known: set[Path] = set()
    waiting = [file.resolve()]
    while waiting:
        path = waiting.pop()
        if path in known:
            continue
        known.add(path)
        for name in _imported(path.read_bytes(), path)[0]:
            dots = len(name) - len(name.lstrip("."))
            absolute = name.startswith(f"{_OWN}.methods.")
            folder = home if absolute else path.parents[dots - 1] if dots else None
            if folder is not None and folder.is_relative_to(home):
                parts = name.split(".")[2:] if absolute else [part for part in name[dots:].split(".") if part]
                waiting += [found] if parts and (found := _below([folder], parts)) is not None else []
    return frozenset(known)


def imports_of_own(file: Path) -> dict[str, Path]:
    """`own_files` by their names: `mod`, and `parts.gates` of what is in a folder."""
    home = file.resolve().parent
    return {".".join(path.relative_to(home).with_suffix("").parts): path for path in sorted(own_files(file))}


def class_digest(found: type) -> str:
    """Digest of a class that was defined where there is no file, as in a notebook: of the byte code of its functions
    and the values of its attributes, with those of its bases outside this distribution.
    """
    digest = hashlib.sha256()
    for one in found.__mro__:
        if one.__module__.partition(".")[0] in {_OWN, "builtins", "torch", *sys.stdlib_module_names} - {"__main__"}:
            continue
        for name, value in sorted(vars(one).items()):
            digest.update(f"{name}={_said(value)};".encode())
    return digest.hexdigest()[:16]


def _said(value: object) -> str:
    inner = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
    if isinstance(inner, type):
        return class_digest(inner)
    code = inner if isinstance(inner, CodeType) else getattr(inner, "__code__", None)
    if code is None:
        return repr(inner) if isinstance(inner, str | int | float | tuple | frozenset | None) else type(inner).__name__
    consts = [_said(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {consts} {getattr(inner, '__defaults__', None)!r}"


def _plugins() -> list[Path]:
    foreign = (name for name in registry.names("methods") if registry.is_foreign("methods", name))
    installed = (registry.file_of("methods", name) for name in foreign)
    return [path.resolve() for path in [*registry.plugin_files(), *installed] if path is not None]


def _imported(content: bytes, path: Path) -> tuple[set[str], bool, set[Path]]:
    """Names of modules that a file may import, relative ones with their dots; whether it looks others up; and files
    that it names.
    """
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # no Python: a compiled module
        return set(), False, set()
    names: set[str] = set()
    named: set[Path] = set()
    looks_up = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            joint = "" if start.endswith(".") else "."
            names |= {start, *(f"{start}{joint}{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if os.path.isfile(beside := path.parent / node.value):  # noqa: PTH113 - False where a text is no path
                named.add(beside.resolve())
        elif isinstance(node, ast.Name):
            looks_up |= node.id in _LOOKS_UP
        elif isinstance(node, ast.Attribute):
            looks_up |= node.attr in _LOOKS_UP
    return {part for name in names for part in _with_parents(name)}, looks_up, named


def _with_parents(name: str) -> Iterator[str]:
    """`a`, `a.b` and `a.b.c`: importing the last one runs them all."""
    dots = len(name) - len(name.lstrip("."))
    parts = name[dots:].split(".")
    for count in range(1, len(parts) + 1):
        yield name[:dots] + ".".join(parts[:count])


def _file(name: str, importing: Path, home: Path | None) -> Path | None:
    """The file of a module, if it belongs to neither this distribution, the standard library nor site packages, its
    own package `home` among these excepted.
    """
    dots = len(name) - len(name.lstrip("."))
    parts = [part for part in name[dots:].split(".") if part]
    if dots:
        return _below([importing.parents[dots - 1]], parts)
    if parts[0] == _OWN or parts[0] in sys.stdlib_module_names:
        return None
    loaded = getattr(sys.modules.get(name), "__file__", None)
    found = Path(loaded).resolve() if loaded else _below([importing.parent, *map(Path, sys.path)], parts)
    return found if found is not None and (_is_outside(found) or _package(found) == home is not None) else None


def _below(folders: Iterable[Path], parts: list[str]) -> Path | None:
    for folder in folders:
        base = folder.joinpath(*parts)
        for path in (base.with_name(f"{base.name}.py") if parts else None, base / "__init__.py"):
            if path is not None and path.is_file():
                return path.resolve()
    return None


def _package(path: Path) -> Path | None:
    """The folder of an installed package that a file belongs to."""
    parents = [path, *path.parents]
    return next(
        (below for below, parent in zip(parents, path.parents, strict=False) if parent.name in _INSTALLED), None
    )


def _is_outside(path: Path) -> bool:
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    return path.is_file() and not _INSTALLED & set(path.parts) and not path.is_relative_to(standard)
