import json
import subprocess
import sys

import pytest

from adaptive_bench import registry


def test_configs_are_listed_with_their_first_comment(command):
    result = command("list", "configs")
    assert result.exit_code == 0
    for name in registry.names("configs"):
        assert name in result.stdout
    assert "The default" in result.stdout


def test_a_plugin_shows_up_with_its_origin(command, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    (tmp_path / "mine.py").write_text(
        "from adaptive_bench.registry import register\n"
        "@register('models', 'mine')\n"
        "def mine():\n"
        "    '''A model of mine.'''\n"
    )
    line = next(
        line for line in command("list", "models", "--plugin", "mine.py").stdout.splitlines() if "mine " in line
    )
    assert "A model of mine." in line
    assert "mine.py" in line


def test_runs_are_the_folders_with_a_table(command, tmp_path):
    assert "no runs yet" in command("list", "runs").stdout
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    (folder / "table.json").write_text(json.dumps([{"method": "mod", "task": "gsm8k"}]))
    text = command("list", "runs").stdout
    assert all(part in text for part in ("runs/first", "mod", "gsm8k"))


def test_something_else_cannot_be_listed(command):
    result = command("list", "metods")
    assert result.exit_code == 2
    assert "metods" in result.stderr


@pytest.mark.parametrize("group", ["methods", "tasks"])
def test_everything_registered_can_be_loaded_first_in_a_fresh_process(group):
    program = [sys.executable, "-m", "adaptive_bench", "list", group]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in registry.names(group):
        assert name in done.stdout
