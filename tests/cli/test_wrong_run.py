"""A wrong argument is a usage error of every command that takes a run, and ends with 2; a damaged run ends with 1."""

from pathlib import Path

import pytest
from every_command import every_command

_ENTRY = Path(__file__).parents[2] / "leaderboard" / "entries" / "nano"
# By command, with what else it needs.
_MORE = {"generate": "Hi --method mod", "export-model": "--method mod -o new", "leaderboard submit": "-o entries"}
_TAKE_ENTRIES = ("show", "leaderboard show", "leaderboard build", "leaderboard paper", "leaderboard ranks")
_TAKE_MODELS = ("inspect", "speculate", "headroom")  # not to be here is a problem of the surroundings
# A board leaves out what is damaged and says so; a run is removed and shown whatever it is.
_GO_ON = ("leaderboard build", "leaderboard paper", "leaderboard ranks", "leaderboard submit", "rm", "show")
_TAKERS = {
    " ".join(path)
    for path, command in every_command()
    if any("RUN" in (getattr(param, "metavar", "") or "") for param in command.params)
} - {*_TAKE_MODELS}
TAKERS = sorted({"time --run" if name == "time" else name for name in _TAKERS})


def _given(name, run):
    runs = [str(run)] * 2 if name == "diff" else ["1", str(run)] if name == "leaderboard paper" else [str(run)]
    return (*name.split(), *runs, *_MORE.get(name, "").split())


def test_the_commands_are_found():
    assert {"diff", "export", "generate", "leaderboard show", "retry", "rm", "samples", "show"} <= {*TAKERS}


@pytest.mark.parametrize("name", TAKERS)
def test_what_is_no_run_is_a_usage_error(command, tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for run in ("nowhere", "empty", "file", *(() if name in _TAKE_ENTRIES else (_ENTRY,))):
        result = command(*_given(name, run))
        told = " ".join(result.stderr.split())
        assert (result.exit_code, result.stdout) == (2, ""), (run, told)
        assert "Usage error:" in told and "`adaptive-bench " in told
        assert run != _ENTRY or f"leaderboard verify {run}" in told  # what can be had of it


@pytest.mark.parametrize("name", [one for one in TAKERS if one not in _GO_ON])
def test_a_run_that_is_damaged_is_none(command, tmp_path, name):
    run = tmp_path / "runs" / "runs" / "mine"
    run.mkdir(parents=True)
    for file, content in (("config.yaml", "a: [\n"), ("run.json", "{}"), ("table.json", "[")):
        (run / file).write_text(content)
    result = command(*_given(name, "mine"))
    assert result.exit_code == 1 and "Defect" not in result.stderr, result.stderr
