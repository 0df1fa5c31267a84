"""What `new-method` writes works: as a plugin file and as an installed package."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from adaptive_bench import registry

pytestmark = pytest.mark.slow


@pytest.fixture
def package(command, monkeypatch):
    """A new package `my_method` in the current folder; what the test registers is gone after it."""
    monkeypatch.setattr(registry, "_registered", {})
    result = command("new-method my_method")
    assert result.exit_code == 0, result.stderr
    return Path("my_method").resolve()


def test_the_package_is_complete_and_tidy(package):
    files = {"my_method.py", "test_my_method.py", "pyproject.toml", "README.md"}
    assert {path.name for path in package.iterdir()} == files
    assert all("$" not in path.read_text() for path in package.iterdir())
    settings = tomllib.loads((package / "pyproject.toml").read_text())
    assert settings["project"]["entry-points"]["adaptive_bench.methods"] == {"my_method": "my_method:MyMethod"}
    assert settings["project"]["name"] == "adaptive-bench-my-method"
    for check in (["check", "--select=E,F,W,I,UP,B"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *check, "--isolated", "--line-length=120", str(package)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_its_own_test_passes(package):
    """The conformance suite, as the user runs it: nothing installed, pytest in the new folder."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=package, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout and "skipped" not in done.stdout


def test_it_is_listed_as_a_plugin_and_installed_without_a_plugin_option(command, package, tmp_path):
    said = command("list methods my_method --plugin my_method/my_method.py").stdout
    assert "my_method" in said and "every" in said and "".join(str(package).split()) in "".join(said.split())
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*install, "--target", str(tmp_path / "site"), str(package)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    program = [sys.executable, "-m", "adaptive_bench", "list", "methods", "--json"]
    listed = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert listed.returncode == 0, listed.stderr
    (mine,) = (row for row in json.loads(listed.stdout) if row["name"] == "my_method")
    assert mine["origin"] == "adaptive-bench-my-method 0.1.0"


@pytest.mark.parametrize(("name", "reason"), [("My-Method", "lower-case"), ("class", "keyword"), ("torch", "module")])
def test_bad_names_are_refused(command, tmp_path, name, reason):
    result = command("new-method", name)
    assert result.exit_code == 2 and reason in result.said and list(tmp_path.iterdir()) == []


def test_another_folder_can_be_named_where_none_is_and_one_can_be_made(command, tmp_path):
    assert command("new-method my_method -o deep/er").exit_code == 0
    assert (tmp_path / "deep" / "er" / "my_method.py").is_file()
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    for place, exit_code in (("there", 2), ("file/below", 1)):
        result = command("new-method my_method -o", place)
        assert result.exit_code == exit_code and "-o" in result.stderr
    assert list((tmp_path / "there").iterdir()) == []
