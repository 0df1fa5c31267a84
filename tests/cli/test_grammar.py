"""Places mean the same in every command: `--out` is the folder of the runs, `-o` what is written, RUN a run."""

from pathlib import Path

import pytest
from every_command import every_command, params_of

from adaptive_bench.errors import (
    AdaptiveBenchError,
    Defect,
    EnvironmentProblem,
    Interrupted,
    PluginFault,
    ToBeContinued,
    UsageError,
)

ROOT = Path(__file__).parents[2]


COMMANDS = {" ".join(path): command for path, command in every_command()}


@pytest.fixture(params=COMMANDS)
def options(request):
    """Of one command, its arguments and options by name."""
    return {name: param for param in params_of(COMMANDS[request.param]) for name in (*param.opts, param.name)}


def test_out_is_the_folder_of_the_runs(options):
    if "--out" in options:
        # Options of a config have no default of their own.
        assert options["--out"].default in (Path("runs"), None)


def test_what_is_written_is_o(options):
    written = {name for name in options if name in ("--output", "-o")}
    assert written in (set(), {"--output", "-o"})
    assert not {"--write", "--to"} & options.keys() or "--branch" in options  # of a git remote


def test_a_command_that_takes_a_run_takes_its_folder(options):
    takes = [param for param in options.values() if "RUN" in str(param.metavar or "").strip("[].").split("|")]
    assert not takes or "--out" in options


def test_a_name_is_looked_for_under_out_wherever_it_stands(command, tmp_path):
    folder = tmp_path / "there" / "runs" / "nano-mod-seed1-00112233"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("model: nano\n")
    for arguments in (
        ("nano", "--out", "there"),
        ("--out", "there", "nano"),
        ("--out", "there", "last"),
        ("there/last",),
    ):
        result = command("show", *arguments)
        assert result.exit_code == 0 and "nano-mod-seed1-00112233" in result.stdout, result.stderr
    assert command("show", "nano").exit_code == 2


def test_exit_codes_are_those_of_the_page():
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| ")][1:]
    told = {int(code): about for code, about in rows}
    assert list(told) == sorted(
        {0, *(kind.exit_code for kind in (AdaptiveBenchError, UsageError, Interrupted, ToBeContinued))}
    )
    for kind in (EnvironmentProblem, PluginFault, Defect, UsageError):
        assert f"`{kind.kind}`" in told[kind.exit_code]
    assert "Ctrl-C" in told[Interrupted.exit_code] and "scheduler" in told[ToBeContinued.exit_code]
