"""The package list in pyproject.toml is written by hand: a package that is missing there is missing from a wheel."""

import ast
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = SETTINGS["tool"]["setuptools"]["package-dir"]


EXTRAS = [name for extra in SETTINGS["project"]["optional-dependencies"].values() for name in extra]


def test_every_folder_with_python_files_is_a_package_that_is_listed():
    found = set()
    for package, folder in FOLDERS.items():
        for inner in {file.parent for file in (ROOT / folder).rglob("*.py")}:
            assert (inner / "__init__.py").exists()
            found.add(".".join((package, *inner.relative_to(ROOT / folder).parts)))
    assert sorted(SETTINGS["tool"]["setuptools"]["packages"]) == sorted(found)


def test_every_dependency_is_pinned():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in pins if "==" in line}
    named = set(map(_name, SETTINGS["project"]["dependencies"] + EXTRAS)) - {"adaptive-bench"}
    assert named <= pinned, named - pinned


def _name(requirement):
    return re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def _imports(file):
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


def _stages():
    """Instructions of the Dockerfile by stage, those of the stage it is built on first."""
    stages: dict[str, list[str]] = {}
    for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines():
        if found := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            base, name = found.groups()
            stages[name] = [f"FROM {base}", *stages.get(base, [])]
        elif line and not line.startswith("#"):
            stages[name].append(line)
    return stages


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_image_has_the_pinned_versions_and_all_that_the_package_is_made_of(target):
    lines = _stages()[target]
    copied = {part for line in lines if line.startswith("COPY ") for part in line.split()[1:-1]}
    assert copied >= {"pyproject.toml", "constraints.txt", *FOLDERS.values(), *SETTINGS["project"]["license-files"]}
    assert SETTINGS["project"]["readme"] in copied and all((ROOT / part).exists() for part in copied)
    (install,) = (line for line in lines if line.startswith("RUN pip install"))
    assert "-c constraints.txt" in install and ("whl/cpu" in install) == (target == "cpu")
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"python:(3\.\d+)-", " ".join(lines))
    assert f"(Python {version}," in pins and re.search(r"^torch==", pins, re.MULTILINE)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"}
    assert kept == copied
    assert lines[-1] == f'ENTRYPOINT ["{next(iter(SETTINGS["project"]["scripts"]))}"]'


_BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def _built(what, source, target):
    command = [sys.executable, "-c", _BUILD, f"build_{what}", str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


def test_a_wheel_made_of_the_sdist_has_all_that_the_package_needs(tmp_path):
    """It is run where its dependencies are and this checkout is not."""
    source, site, dist = (tmp_path / name for name in ("source", "site", "dist"))
    for folder in (source, dist):
        folder.mkdir()
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    for folder in FOLDERS.values():
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__", "entries"))
    sdist = _built("sdist", source, dist)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wheel = _built("wheel", unpacked, dist)
    shutil.unpack_archive(wheel, site, format="zip")
    program = (
        "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); import adaptive_bench; print(adaptive_bench.__file__)\n"
        "from adaptive_bench import registry; print(registry.get('models', 'nano')())\n"
        "from adaptive_bench.config import load_config; load_config('nano')\n"
        "from adaptive_bench.cli import main; main()"
    )
    paths = f"{site}:{sysconfig.get_path('purelib')}"
    command = [sys.executable, "-I", "-S", "-c", program, paths, "list", "methods"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    package, nano, *methods = done.stdout.splitlines()
    assert (
        Path(package).is_relative_to(site)
        and Path(nano).is_relative_to(site)
        and (Path(nano) / "config.json").is_file()
    )
    listed = {line.split()[0] for line in methods if line}
    assert set(SETTINGS["project"]["entry-points"]["adaptive_bench.methods"]) <= listed
