"""The source that code outside this distribution runs through: its file and all it imports, as digests of bytes.

Nothing is imported for it. What is installed among the site packages is left out, and so is the standard library: their
versions stand in every record. A file that looks other code up by name while it runs (in the registry, with
`importlib`) may run through any plugin, so that all of them are taken in.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType

from adaptive_bench import registry

_OWN = "adaptive_bench"
_LOOKS_UP = {"registry", "importlib", "__import__", "exec", "eval", "runpy", "modules"}
_INSTALLED = {"site-packages", "dist-packages"}


@cache  # a plan may have thousands of cells, and what is loaded does not change under it
def closure(file: Path) -> tuple[str, frozenset[str]]:
    """What a file of a plugin runs through.

    Returns:
        Digest of the source outside this distribution, wherever it lies; and the methods of this distribution that it
        builds on, by the names of their files.
    """
    sources: dict[Path, str] = {}
    own: set[str] = set()
    waiting = [file.resolve()]
    while waiting:
        path = waiting.pop()
        if path in sources:
            continue
        content = path.read_bytes()
        sources[path] = hashlib.sha256(content).hexdigest()
        names, looks_up = _imported(content, path)
        own |= {name.split(".")[2] for name in names if name.startswith(f"{_OWN}.methods.")}
        waiting += [found for name in names if (found := _file(name, path)) is not None]
        if looks_up:
            waiting += _plugins()
    return hashlib.sha256("\n".join(sorted(sources.values())).encode()).hexdigest()[:16], frozenset(own)


@cache
def imports_of_own(file: Path) -> frozenset[str]:
    """Methods of this distribution that one of its files builds on, itself included, by the names of their files."""
    known: set[str] = set()
    waiting = [file.stem]
    while waiting:
        stem = waiting.pop()
        beside = file.with_name(f"{stem}.py")
        if stem in known or not beside.is_file():
            continue
        known.add(stem)
        names, _ = _imported(beside.read_bytes(), beside)
        waiting += [name.split(".")[-1] for name in names if name.startswith(".")]
        waiting += [name.split(".")[2] for name in names if name.startswith(f"{_OWN}.methods.")]
    return frozenset(known)


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
    files = registry.plugin_files()
    installed = (registry.file_of("methods", name) for name in registry.names("methods") if _is_foreign(name))
    return [path.resolve() for path in [*files, *installed] if path is not None]


def _is_foreign(name: str) -> bool:
    return registry.is_foreign("methods", name)


def _imported(content: bytes, path: Path) -> tuple[set[str], bool]:
    """Names of modules that a file may import, relative ones with their dots; and whether it looks others up."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # no Python: a compiled module
        return set(), False
    names: set[str] = set()
    looks_up = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            joint = "" if start.endswith(".") else "."
            names |= {start, *(f"{start}{joint}{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Name):
            looks_up |= node.id in _LOOKS_UP
        elif isinstance(node, ast.Attribute):
            looks_up |= node.attr in _LOOKS_UP
    return {part for name in names for part in _with_parents(name)}, looks_up


def _with_parents(name: str) -> Iterator[str]:
    """`a`, `a.b` and `a.b.c`: importing the last one runs them all."""
    dots = len(name) - len(name.lstrip("."))
    parts = name[dots:].split(".")
    for count in range(1, len(parts) + 1):
        yield name[:dots] + ".".join(parts[:count])


def _file(name: str, importing: Path) -> Path | None:
    """The file of a module, if it belongs to neither this distribution, the standard library nor site packages."""
    dots = len(name) - len(name.lstrip("."))
    parts = [part for part in name[dots:].split(".") if part]
    if dots:
        return _below([importing.parents[dots - 1]], parts)
    if parts[0] == _OWN or parts[0] in sys.stdlib_module_names:
        return None
    loaded = getattr(sys.modules.get(name), "__file__", None)
    found = Path(loaded).resolve() if loaded else _below([importing.parent, *map(Path, sys.path)], parts)
    return found if found is not None and _is_outside(found) else None


def _below(folders: Iterable[Path], parts: list[str]) -> Path | None:
    for folder in folders:
        base = folder.joinpath(*parts)
        for path in (base.with_name(f"{base.name}.py") if parts else None, base / "__init__.py"):
            if path is not None and path.is_file():
                return path.resolve()
    return None


def _is_outside(path: Path) -> bool:
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    return path.is_file() and not _INSTALLED & set(path.parts) and not path.is_relative_to(standard)
