"""What holds for every command and option, new ones included: names mean the same, help is soon there, and whatever is
wrong with a value is an error that names it, never a traceback or a defect.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from every_command import every_command, params_of

from adaptive_bench.cli.program import COMMANDS
from adaptive_bench.config import keys
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
ALL = {" ".join(path): command for path, command in every_command()}
OPTIONS = [
    (path, param)
    for path, command in ALL.items()
    for param in params_of(command)
    if param.param_type_name == "option" and not param.is_flag and param.name != "help"
]


def _name(param):
    return max(param.opts, key=len)


def _takes(param):
    """What one value of it becomes."""
    annotation = param.type_descriptor.annotation
    return (get_args(annotation) or (annotation,))[0]


def _id(value):
    return value if isinstance(value, str) else _name(value)


@pytest.mark.parametrize("name", ALL)
def test_names_mean_the_same_in_every_command(name):
    """`--out` is the folder of the runs, `-o` what is written, and whoever takes a run takes its folder."""
    params = {one: param for param in params_of(ALL[name]) for one in (*param.opts, param.name)}
    if "--out" in params:
        assert params["--out"].default in (Path("runs"), None)  # options of a config have no default of their own
    assert params.keys() & {"--output", "-o"} in (set(), {"--output", "-o"})
    assert not {"--write", "--to"} & params.keys() or "--branch" in params  # of a git remote
    takes_runs = any("RUN" in re.findall(r"\w+", str(param.metavar or "")) for param in params.values())
    assert not takes_runs or "--out" in params


def test_a_name_is_looked_for_under_out_wherever_it_stands(command, tmp_path):
    folder = tmp_path / "there" / "runs" / "nano-mod-seed1-00112233"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("model: nano\n")
    for arguments in ("nano --out there", "--out there nano", "--out there last", "there/last"):
        result = command("show", *arguments.split())
        assert result.exit_code == 0 and "nano-mod-seed1-00112233" in result.stdout, result.stderr
    assert command("show nano").exit_code == 2


def test_exit_codes_are_those_of_the_page():
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| ")][1:]
    told = {int(code): about for code, about in rows}
    kinds = (AdaptiveBenchError, UsageError, Interrupted, ToBeContinued)
    assert list(told) == sorted({0, *(kind.exit_code for kind in kinds)})
    for kind in (EnvironmentProblem, PluginFault, Defect, UsageError):
        assert f"`{kind.kind}`" in told[kind.exit_code]
    assert "Ctrl-C" in told[Interrupted.exit_code] and "scheduler" in told[ToBeContinued.exit_code]


def test_the_program_says_of_each_command_what_its_own_help_begins_with():
    for name, source in COMMANDS.items():
        assert " ".join(source.load(name).help.split("\n\n")[0].split()) == source.summary(), name


HEAVY = """
import sys
from adaptive_bench.cli import main
from adaptive_bench.cli.program import COMMANDS
try:
    main()
finally:
    heavy = {'torch', 'transformers', 'lm_eval', 'datasets', 'pandas', 'numpy'}
    if len(sys.argv) == 2:  # the program's own help needs no command
        heavy |= {'pydantic'} | {f"adaptive_bench.cli.{one.place.partition(':')[0]}" for one in COMMANDS.values()}
    assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


@pytest.mark.parametrize("command", ["", "run ", "list ", "check ", "samples ", "export "])
def test_help_imports_nothing_heavy_and_suits_a_terminal_that_knows_ascii_alone(command):
    known = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    program = [sys.executable, "-c", HEAVY, *f"{command}--help".split()]
    done = subprocess.run(program, capture_output=True, text=True, env=known)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.isascii() and "Usage" in done.stdout
    assert "gateskip[" in done.stdout or command != "run "  # brackets survive the formatting
    assert command or all(name in done.stdout for name in COMMANDS)


def _required(path, but):
    """Arguments and options that a command cannot do without, with values that are fit to be refused later."""
    given = []
    for param in ALL[path].params:
        if param.required and param.name != but.name:
            value = "1" if _takes(param) in (int, float) else "nowhere"
            given += [value] if param.param_type_name == "argument" else [param.opts[0], value]
    return given


@pytest.fixture
def refuses(command, tmp_path, monkeypatch):
    """`refuses(path, *arguments)`: it ends as a mistake, says so in words, and leaves nothing behind."""
    (tmp_path / "nowhere").mkdir()  # a run as far as names go
    (tmp_path / "nowhere" / "config.yaml").write_text("model: nano\n")
    before = sorted(tmp_path.iterdir())
    for name, module in list(sys.modules.items()):
        if name.startswith("adaptive_bench.cli.") and hasattr(module, "load_libraries"):
            monkeypatch.setattr(module, "load_libraries", lambda *_: pytest.fail("the work began"))

    def check(path, *arguments):
        result = command(*path.split(), *arguments)
        told = " ".join(result.stderr.split())
        assert result.exit_code in (1, 2), (result.exit_code, result.stdout, told)
        assert "Defect" not in told and "Traceback" not in told, told
        assert any(kind in told for kind in ("Usage", "─ Error ─", "Environment problem", "Plugin fault")), told
        assert not set(result.stderr) & set("\x1b\x07\x00") and len(result.stderr) < 6000
        assert sorted(tmp_path.iterdir()) == before, "something was written"
        return told

    return check


@pytest.mark.slow
@pytest.mark.parametrize(("path", "param"), OPTIONS, ids=_id)
def test_a_value_that_is_wrong_for_any_option_is_refused(refuses, path, param):
    needed, name = _required(path, param), _name(param)
    for empty in ("", "  "):
        assert "needs a value" in refuses(path, *needed, name, empty)
    assert name in refuses(path, *needed, name)
    if not param.multiple:
        assert "2 times" in refuses(path, *needed, name, "1", name, "1")
    for wrong in ("abc", "1,2x") if _takes(param) in (int, float) else ():
        told = refuses(path, *needed, f"{name}={wrong}")
        assert wrong in told and name in told


@pytest.mark.slow
@pytest.mark.parametrize("path", ALL)
def test_a_word_too_many_or_an_option_that_is_not_there_is_refused(refuses, path):
    refuses(path, "--no-such-option")
    refuses(path, *["red"] * 9)


def _kinds(annotation):
    inner = get_args(annotation)
    return {annotation}.union(*map(_kinds, inner)) if inner else {annotation}


NUMBERS = [name for name, about in keys().items() if _kinds(about.annotation) & {int, float}]
WRONG = ("abc", "[a]", "{a: 1}", ".nan", "1e400", "9" * 30, "''", "2026-11-20", "[[1]]")
# No gradient is ever as long, and no clipping is what is meant; rates by method are keys with numbers.
MEANT = {("train.clip_norm", "9" * 30), ("train.method_learning_rates", "{a: 1}")}


def test_there_is_something_to_try():
    assert {"export", "generate", "leaderboard show", "retry", "rm", "samples", "show"} <= {*TAKERS}
    assert len(OPTIONS) > 150 and {"run", "check", "leaderboard build", "time", "list"} <= ALL.keys()
    assert {"train.steps", "train.target", "seeds", "levels", "evaluation.closeness", "cell_timeout"} <= set(NUMBERS)


@pytest.mark.parametrize("key", NUMBERS)
def test_what_is_no_number_is_refused_by_the_name_of_its_key(command, tmp_path, key):
    for value in WRONG:
        if (key, value) in MEANT:
            continue
        result = command("run --set", f"{key}={value}", "--dry-run")
        told = " ".join(result.stderr.split())
        assert result.exit_code == 2, (value, told)
        assert "Usage error" in told and key in told.replace(" ", ""), (value, told)
        assert not any(tmp_path.iterdir())


# What each command prints with `--json`: nothing else on standard output, and nothing that is no JSON.
NAME = "RUN"  # stands for the run's name
CHEAP = ("--device", "cpu")
WITH_JSON = {
    "list-methods": ("list", "methods"),
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
        *("speculate", NAME, "--method", "gateskip", "--tasks", "nano_math", "--savings", "0.2"),
        *("--limit", "2", "--max-new-tokens", "8", "--rounds", "1", *CHEAP),
    ),
    "headroom": ("headroom", NAME, "--tasks", "nano_math", "--limit", "2", "--levels", "0.1,0.9", *CHEAP),
    "generate": ("generate", NAME, "--method", "gateskip", "--saving", "0.1", "--max-new-tokens", "4", "1 + 1", *CHEAP),
    "inspect": ("inspect", NAME, "--tasks", "nano_math", "--limit", "2", *CHEAP),
    "inspect-paper": ("inspect", NAME, "--tasks", "nano_math", "--limit", "2", "--paper", *CHEAP),
    "check": ("check", "dense", "--family", "llama"),
}


@pytest.mark.parametrize("name", WITH_JSON)
def test_a_command_prints_json_alone(command, smoke_run, tmp_path, name):
    called = smoke_run.name
    shutil.copytree(smoke_run.parents[1], tmp_path / "runs")
    if name == "verify":
        authors = ("--authors", "A. Name", "--licence", "CC0-1.0")
        assert command("leaderboard submit", called, "-o", "entries", *authors).exit_code == 0
    printed = command(*(one.replace(NAME, called) for one in WITH_JSON[name]), "--json")
    assert printed.exit_code == 0, printed.stderr
    assert json.loads(printed.stdout, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))


def test_every_command_with_json_is_tried():
    tried = {" ".join(one) for one in WITH_JSON.values()}
    for path, each in every_command():
        if any("--json" in param.opts for param in each.params):
            assert any(text.startswith(" ".join(path)) for text in tried), path


# A wrong argument is a usage error of every command that takes a run, and ends with 2; a damaged run ends with 1.
_ENTRY = ROOT / "leaderboard" / "entries" / "nano"
# By command, with what else it needs.
_MORE = {"generate": "Hi --method mod", "export-model": "--method mod -o new", "leaderboard submit": "-o entries"}
_TAKE_ENTRIES = ("show", "leaderboard show", "leaderboard build", "leaderboard paper", "leaderboard ranks")
_TAKE_MODELS = ("inspect", "speculate", "headroom")  # not to be here is a problem of the surroundings
# A board leaves out what is damaged and says so; a run is removed and shown whatever it is.
_GO_ON = ("leaderboard build", "leaderboard paper", "leaderboard ranks", "leaderboard submit", "rm", "show")
_TAKERS = {
    " ".join(path)
    for path, each in every_command()
    if any("RUN" in (getattr(param, "metavar", "") or "") for param in each.params)
} - {*_TAKE_MODELS}
TAKERS = sorted({"time --run" if name == "time" else name for name in _TAKERS})


def _given(name, run):
    runs = ["1", str(run)] if name == "leaderboard paper" else [str(run)]
    return (*name.split(), *runs, *_MORE.get(name, "").split())


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
