"""What each command prints with `--json`: nothing else on standard output, and nothing that is no JSON."""

import json
import shutil

import pytest
from every_command import every_command

NAME = "RUN"  # stands for the run's name
CHEAP = ("--device", "cpu")
COMMANDS = {
    "list-methods": ("list", "methods"),
    "list-methods-model": ("list", "methods", "--model", "nano", "--methods", "gateskip,mod"),
    "list-tasks": ("list", "tasks"),
    "list-models": ("list", "models"),
    "list-families": ("list", "families"),
    "list-configs": ("list", "configs"),
    "list-runs": ("list", "runs"),
    "list-keys": ("list", "keys"),
    "status": ("status",),
    "samples": ("samples", NAME),
    "verify": ("leaderboard", "verify", f"entries/{NAME}"),
    "time": (
        *("time", "--run", NAME, "--methods", "gateskip", "--batch", "1", "--prompt", "4", "--new", "4"),
        *("--savings", "0,0.2", "--rounds", "1", *CHEAP),
    ),
    "speculate": (
        *("speculate", NAME, "--method", "gateskip", "--tasks", "nano_math", "--savings", "0.2", "--batch", "1"),
        *("--limit", "2", "--max-new-tokens", "8", "--rounds", "1", *CHEAP),
    ),
    "headroom": ("headroom", NAME, "--tasks", "nano_math", "--limit", "2", "--levels", "0.1,0.9", *CHEAP),
    "generate": ("generate", NAME, "--method", "gateskip", "--saving", "0.1", "--max-new-tokens", "4", "1 + 1", *CHEAP),
    "inspect": ("inspect", NAME, "--tasks", "nano_math", "--limit", "2", *CHEAP),
    "inspect-paper": ("inspect", NAME, "--tasks", "nano_math", "--limit", "2", "--paper", *CHEAP),
    "check": ("check", "dense", "--family", "llama"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_json_alone(command, smoke_run, tmp_path, name):
    called = smoke_run.name
    shutil.copytree(smoke_run.parents[1], tmp_path / "runs")
    if name == "verify":
        authors = ("--authors", "A. Name", "--licence", "CC0-1.0")
        assert command("leaderboard submit", called, "-o", "entries", *authors).exit_code == 0
    printed = command(*(one.replace(NAME, called) for one in COMMANDS[name]), "--json")
    assert printed.exit_code == 0, printed.stderr
    assert json.loads(printed.stdout, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))


def test_every_command_with_json_is_tried():
    tried = {" ".join(one) for one in COMMANDS.values()}
    for path, each in every_command():
        if any("--json" in param.opts for param in each.params):
            assert any(text.startswith(" ".join(path)) for text in tried), path
