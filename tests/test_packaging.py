"""The package list in pyproject.toml is written by hand: a package that is missing there is missing from a wheel."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = SETTINGS["tool"]["setuptools"]["package-dir"]


def _packages_on_disk() -> set[str]:
    found = set()
    for package, folder in FOLDERS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / folder).parts
            found.add(".".join((package, *inner)))
    return found


def test_every_package_is_listed():
    assert sorted(SETTINGS["tool"]["setuptools"]["packages"]) == sorted(_packages_on_disk())


def test_every_folder_with_python_files_is_a_package():
    folders = {file.parent for folder in FOLDERS.values() for file in (ROOT / folder).rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


EXTRAS = [name for extra in SETTINGS["project"]["optional-dependencies"].values() for name in extra]


@pytest.mark.parametrize(
    "name", SETTINGS["project"]["dependencies"] + [name for name in EXTRAS if not name.startswith("adaptive-bench[")]
)
def test_every_dependency_is_pinned(name):
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    assert name.partition(">=")[0].partition("[")[0].lower() in pinned


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def _imports(file: Path) -> set[str]:
    """Top-level modules a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    froms = [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in (*plain, *froms)}


def test_every_import_is_declared_and_none_is_for_tests():
    declared = {_name(requirement) for requirement in (*SETTINGS["project"]["dependencies"], *EXTRAS)}
    owners = packages_distributions()
    for file in (file for folder in FOLDERS.values() for file in (ROOT / folder).rglob("*.py")):
        imports = _imports(file)
        foreign = imports - sys.stdlib_module_names - {"adaptive_bench"}
        undeclared = {name for name in foreign if not declared & set(map(_name, owners.get(name, [name])))}
        assert not undeclared, f"{file} imports {undeclared}: declare it in pyproject.toml"
        assert "unittest.mock" not in file.read_text(encoding="utf-8")
