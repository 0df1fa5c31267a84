"""What `new-method` writes works: as a plugin file and as an installed package."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from adaptive_bench import registry
from adaptive_bench.model import AdaptiveModel

pytestmark = pytest.mark.slow


@pytest.fixture
def package(command, monkeypatch):
    """A new package `my_method` in the current folder; what the test registers is gone after it."""
    monkeypatch.setattr(registry, "_registered", {})
    result = command("new-method my_method")
    assert result.exit_code == 0, result.stderr
    return Path("my_method").resolve()


def test_the_package_is_complete_and_tidy(package):
    assert {path.name for path in package.iterdir()} == {
        *("my_method.py", "test_my_method.py", "pyproject.toml", "README.md")
    }
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
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
def test_the_method_saves_what_its_dial_says(package, make_backbone, random_text, family):
    registry.load_plugin(package / "my_method.py")
    model = AdaptiveModel.build(make_backbone(family), "my_method", seed=1).eval()
    ids = random_text(16, 30)
    batch = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "continuation_mask": torch.arange(30).expand_as(ids) >= 15,
    }
    model.calibrate([batch], [0.2])
    model.dial = model.method.dial_for(0.2)
    model(**batch)
    assert model.compute_report()["saved"]["tokens"] == pytest.approx(0.2, abs=0.03)


def test_the_plugin_is_listed(command, package):
    said = command("list methods my_method --plugin my_method/my_method.py").stdout
    assert "my_method" in said and "every" in said and "".join(str(package).split()) in "".join(said.split())


def test_the_installed_package_is_found_without_a_plugin_option(package, tmp_path):
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*install, "--target", str(tmp_path / "site"), str(package)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    listed = subprocess.run(
        [sys.executable, "-m", "adaptive_bench", "list", "methods", "--json"],
        capture_output=True,
        text=True,
        env=environment,
    )
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
        assert result.exit_code == exit_code and "-o" in result.stderr.split()[-1]
    assert list((tmp_path / "there").iterdir()) == []
