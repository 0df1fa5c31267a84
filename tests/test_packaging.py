"""The package list in pyproject.toml is written by hand: a package that is missing there is missing from a wheel."""

import tomllib
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
