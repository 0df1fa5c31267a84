"""Every option of every command, given what is wrong for any: an error that names it, never a traceback or a defect.

The corpus of `bad_input.py` has what was found by hand; here no option is left out, new ones included.
"""

import sys
from typing import get_args

import pytest
from every_command import every_command, params_of

pytestmark = pytest.mark.slow

# Each is wrong for the option that it is given to, whatever else is said.
EMPTY, BLANK = "", "  "
NOT_NUMBERS = ("abc", "1,2x")


def _takes(param):
    """What one value of it becomes."""
    annotation = param.type_descriptor.annotation
    return (get_args(annotation) or (annotation,))[0]


ALL = [
    (path, command, param)
    for path, command in every_command()
    for param in params_of(command)
    if param.param_type_name == "option" and not param.is_flag and param.name != "help"
]
NUMBERS = [one for one in ALL if _takes(one[2]) in (int, float)]


def _id(value):
    return " ".join(value) if isinstance(value, tuple) else getattr(value, "opts", [None])[0]


def _required(command, but):
    """Arguments and options that a command cannot do without, with values that are fit to be refused later."""
    given = []
    for param in command.params:
        if param.required and param.name != but.name:
            value = "1" if _takes(param) in (int, float) else "nowhere"
            given += [value] if param.param_type_name == "argument" else [param.opts[0], value]
    return given


@pytest.fixture
def refuses(command, tmp_path, monkeypatch):
    """`refuses(path, command, *arguments)`: it ends as a mistake, says so in words, and leaves nothing behind."""
    (tmp_path / "nowhere").mkdir()  # a run as far as names go
    (tmp_path / "nowhere" / "config.yaml").write_text("model: nano\n")
    before = sorted(tmp_path.iterdir())

    def accepted():
        raise AssertionError("nothing was wrong, and the work began")

    for name, module in list(sys.modules.items()):
        if name.startswith("adaptive_bench.cli.") and hasattr(module, "load_libraries"):
            monkeypatch.setattr(module, "load_libraries", accepted)

    def check(*arguments):
        result = command(*arguments)
        told = " ".join(result.stderr.split())
        assert result.exit_code in (1, 2), (result.exit_code, result.stdout, told)
        assert "Defect" not in told and "Traceback" not in told, told
        assert any(kind in told for kind in ("Usage", "─ Error ─", "Environment problem", "Plugin fault")), told
        assert not set(result.stderr) & set("\x1b\x07\x00"), "a terminal would obey it"
        assert len(result.stderr) < 6000
        assert sorted(tmp_path.iterdir()) == before, "something was written"
        return told

    return check


def _name(param):
    return max(param.opts, key=len)


@pytest.mark.parametrize(("path", "one", "param"), ALL, ids=_id)
def test_an_empty_value_is_no_value(refuses, path, one, param):
    for value in (EMPTY, BLANK):
        told = refuses(*path, *_required(one, param), _name(param), value)
        assert "needs a value" in told


@pytest.mark.parametrize(("path", "one", "param"), [each for each in ALL if not each[2].multiple], ids=_id)
def test_an_option_that_counts_once_is_given_once(refuses, path, one, param):
    values = [_name(param), "1"] * 2
    assert "2 times" in refuses(*path, *_required(one, param), *values)


@pytest.mark.parametrize(("path", "one", "param"), NUMBERS, ids=_id)
def test_what_is_no_number_is_shown_and_refused(refuses, path, one, param):
    for value in NOT_NUMBERS:
        told = refuses(*path, *_required(one, param), f"{_name(param)}={value}")
        assert value in told and _name(param) in told


@pytest.mark.parametrize(("path", "one", "param"), ALL, ids=_id)
def test_an_option_without_its_value_is_refused(refuses, path, one, param):
    assert _name(param) in refuses(*path, *_required(one, param), _name(param))


@pytest.mark.parametrize("path", [path for path, _ in every_command()], ids=" ".join)
def test_a_word_too_many_or_an_option_that_is_not_there_is_refused(refuses, path):
    refuses(*path, "--no-such-option")
    refuses(*path, *["red"] * 9)


def test_there_is_something_to_try():
    assert len(ALL) > 150 and len(NUMBERS) > 30
    assert {path[0] for path, _, _ in ALL} >= {"run", "check", "leaderboard", "time", "list"}
