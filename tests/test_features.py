"""Each row of docs/features.md has a command that is one, and a test that is there."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from adaptive_bench.cli import app

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/features.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d", line)
]


def test_they_are_numbered():
    assert len(ROWS) > 20 and [int(row[0]) for row in ROWS] == list(range(1, len(ROWS) + 1))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_command_has_the_options_that_are_given_to_it(row):
    program, *words = shlex.split(row[2].strip("`"))
    assert program == "adaptive-bench"
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        if words[0] not in command.commands and "show" in command.commands:
            words.insert(0, "show")  # of `leaderboard RUN`
        command = command.get_command(None, words.pop(0))
    if command.name == "lm-eval":  # its options are lm-eval's
        return
    context = command.context_class(command, info_name=row[0])
    known = {name for param in command.get_params(context) for name in param.opts}
    given = {word.partition("=")[0] for word in words if word.startswith("-")}
    assert given <= known, given - known


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_test_is_there(row):
    (path,) = re.findall(r"`(tests/[^`]+)`", row[3])
    assert "def test_" in (ROOT / path).read_text(encoding="utf-8")
