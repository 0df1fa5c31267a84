"""Every code block of the tutorial runs, in its order; whole runs on a tiny model instead of the default one."""

import ast
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.cli import main

pytestmark = pytest.mark.slow

TUTORIAL = (Path(__file__).parents[2] / "docs" / "tutorial_add_a_method.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL)
PYTHON = {block["file"]: block["text"] for block in BLOCK.finditer(TUTORIAL) if block["language"] == "python"}
COMMANDS = [
    line for block in BLOCK.finditer(TUTORIAL) if not block["language"] for line in block["text"].strip().splitlines()
]


@pytest.fixture(autouse=True)
def written(monkeypatch, tmp_path):
    """An empty folder with the tutorial's files; what they register is gone after the test."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("adaptive_bench.cli.options.quiet", lambda: None)
    for file, text in PYTHON.items():
        Path(file).write_text(text)


def test_nothing_is_left_out():
    assert set(PYTHON) == {"coast.py", "look.py", "learned_coast.py"}
    assert TUTORIAL.count("```") == 2 * (len(PYTHON) + len(re.findall(r"^```$\n(?=adaptive-bench)", TUTORIAL, re.M)))


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command, monkeypatch, model_folder, capsys):
    arguments = shlex.split(command)
    if arguments[1] == "run":
        arguments += ["--model", str(model_folder), "--tasks", "nano_qa_ll", "--limit", "3", "--train-steps", "2"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    assert end.value.code in (0, None), printed.err
    assert {"list": "coast", "check": "specs pass", "run": "coast", "new-method": "Wrote"}[arguments[1]] in printed.out


def test_the_look_inside(capsys):
    runpy.run_path("look.py")
    found = ast.literal_eval(capsys.readouterr().out)
    assert 0.2 < found["tokens"] < 0.4
    assert found["net"] < found["core"] <= found["tokens"]
