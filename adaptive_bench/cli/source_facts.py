"""What methods and families of this distribution say of themselves, read from their source files.

Importing them loads PyTorch, which takes seconds; a list of names needs none of it. A plugin's code may do anything to
get its description, so plugins are imported.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_bench import registry

_BASE_CONFIG = "MethodConfig"  # of the core, without a parameter


def source_facts(group: registry.Group, name: str) -> dict[str, Any] | None:
    """`description`, and of a method its `parameters`; `None` where the source does not show it or is a plugin's."""
    if group not in ("methods", "families") or registry.is_foreign(group, name):
        return None
    target = registry.target_of(group, name)
    file = None if target is None else _file(target[0])
    if target is None or file is None:
        return None
    return _method(_module(file), target[1], file) if group == "methods" else _family(_module(file), target[1])


def _file(module: str) -> Path | None:
    """Where a module of this distribution lies. To ask Python for one of a package in a package imports the outer one,
    and with it PyTorch.
    """
    top, _, below = module.removeprefix("adaptive_bench.").partition(".")
    spec = importlib.util.find_spec(f"adaptive_bench.{top}")
    if spec is None or spec.origin is None or not below:
        return None
    file = Path(spec.origin).parent.joinpath(*below.split(".")).with_suffix(".py")
    return file if file.is_file() else None


def _module(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _family(module: ast.Module, target: str) -> dict[str, Any] | None:
    """A family is made by a call whose first argument is its description."""
    for statement in module.body:
        if isinstance(statement, ast.Assign) and [ast.unparse(one) for one in statement.targets] == [target]:
            made = statement.value
            if isinstance(made, ast.Call) and made.args and isinstance(made.args[0], ast.Constant):
                return {"description": made.args[0].value}
    return None


class _Place(NamedTuple):
    """Where a class is defined."""

    found: ast.ClassDef
    module: ast.Module
    file: Path


def _method(module: ast.Module, target: str, file: Path) -> dict[str, Any] | None:
    place = _class(target, module, file)
    named = None if place is None else _config_name(place)
    if place is None or named is None:
        return None
    about = {"description": (ast.get_docstring(place.found) or "").partition("\n")[0]}
    name, there = named
    if name == _BASE_CONFIG:
        return about | {"parameters": []}
    parameters = _fields(name, there)
    return None if parameters is None else about | {"parameters": parameters}


def _config_name(place: _Place) -> tuple[str, _Place] | None:
    """What a method's `Config` is called, or that of its base in another file of the folder, and where it says so."""
    for statement in place.found.body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "Config" and statement.value:
            return ast.unparse(statement.value), place
    bases = (_class(ast.unparse(base), place.module, place.file) for base in place.found.bases)
    return next((_config_name(base) for base in bases if base is not None), None)


def _fields(config: str, there: _Place) -> list[str] | None:
    """Of a config and of those it is built upon, in the order pydantic gives them; `None` of one that is not found."""
    if config == _BASE_CONFIG:
        return []
    place = _class(config, there.module, there.file)
    if place is None or len(place.found.bases) != 1:
        return None
    inherited = _fields(ast.unparse(place.found.bases[0]), place)
    return None if inherited is None else list(dict.fromkeys([*inherited, *_own_fields(place.found)]))


def _own_fields(settings: ast.ClassDef) -> Iterator[str]:
    for statement in settings.body:
        if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement.annotation).startswith("ClassVar"):
            yield ast.unparse(statement.target)


def _class(name: str, module: ast.Module, file: Path) -> _Place | None:
    """A class of a module, or of the file beside it that it is imported from."""
    for statement in module.body:
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            return _Place(statement, module, file)
        if isinstance(statement, ast.ImportFrom) and statement.level == 1 and statement.module:
            beside = file.with_name(f"{statement.module}.py")
            if any(one.name == name for one in statement.names) and beside.is_file():
                return _class(name, _module(beside), beside)
    return None
