"""What methods and families of this distribution say of themselves, read from their source files.

Importing them loads PyTorch, which takes seconds; a list of names needs none of it. A plugin's code may do anything to
get its description, so plugins are imported.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adaptive_bench import registry

_BASE_CONFIG = "MethodConfig"  # of the core, without a parameter


def source_facts(group: registry.Group, name: str) -> dict[str, Any] | None:
    """`what it is`, and of a method its `parameters`; `None` where the source does not show it or is a plugin's."""
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
                return {"what it is": made.args[0].value}
    return None


def _method(module: ast.Module, target: str, file: Path) -> dict[str, Any] | None:
    found = _class(module, target)
    config = None if found is None else _config_name(module, found, file)
    if found is None or config is None:
        return None
    about = {"what it is": (ast.get_docstring(found) or "").partition("\n")[0]}
    if config == _BASE_CONFIG:
        return about | {"parameters": []}
    settings = _class(module, config)
    if settings is None or [ast.unparse(base) for base in settings.bases] != [_BASE_CONFIG]:
        return None
    return about | {"parameters": list(_fields(settings))}


def _config_name(module: ast.Module, found: ast.ClassDef, file: Path) -> str | None:
    """The class that a method's `Config` names, or that of its base in another file of the folder if it has no field
    of its own.
    """
    for statement in found.body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "Config" and statement.value:
            return ast.unparse(statement.value)
    bases = {ast.unparse(base) for base in found.bases}
    for statement in module.body:
        if isinstance(statement, ast.ImportFrom) and statement.module and statement.level == 1:
            for imported in statement.names:
                beside = file.with_name(f"{statement.module}.py")
                if imported.name in bases and beside.is_file():
                    other = _module(beside)
                    base = _class(other, imported.name)
                    inherited = None if base is None else _config_name(other, base, beside)
                    return inherited if inherited == _BASE_CONFIG else None
    return None


def _fields(settings: ast.ClassDef) -> Iterator[str]:
    for statement in settings.body:
        if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement.annotation).startswith("ClassVar"):
            yield ast.unparse(statement.target)


def _class(module: ast.Module, name: str) -> ast.ClassDef | None:
    return next((one for one in module.body if isinstance(one, ast.ClassDef) and one.name == name), None)
