"""Whose fault an error is."""

import errno
import importlib
import os
import subprocess
import sys

import pytest

from adaptive_bench import error_origin, registry
from adaptive_bench.errors import (
    Defect,
    EnvironmentProblem,
    PluginFault,
    SeveralProblems,
    UsageError,
    message_of,
    one_line,
)


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """`plugin(code)`: what a plugin file with that code registers as the model `mine`."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(error_origin, "_watched", set())

    def load(code):
        file = tmp_path / "mine.py"
        file.write_text(f"from adaptive_bench.registry import register\n@register('models', 'mine')\n{code}")
        registry.load_plugin(file)
        return registry.get("models", "mine")

    return load


def raised(call):
    with pytest.raises(BaseException) as caught:
        call()
    return caught.value


def test_a_line_of_a_plugin_is_named(plugin):
    """The innermost one, although a library raised."""
    found = error_origin.explained(raised(plugin("def mine():\n    import json\n    return json.loads('{')\n")))
    assert isinstance(found, PluginFault)
    assert "mine.py, line 5, in mine" in str(found) and "JSONDecodeError" in str(found)


def test_what_a_plugin_error_was_turned_into_is_still_its_fault(plugin):
    mine = plugin("def mine():\n    return {}['x']\n")

    def call():
        try:
            mine()
        except KeyError as error:
            raise RuntimeError("no value") from error

    assert isinstance(error_origin.explained(raised(call)), PluginFault)


def test_other_errors_are_the_machine_or_a_suspect_or_ours():
    full = OSError(errno.ENOSPC, "No space left on device")
    assert isinstance(error_origin.explained(full), EnvironmentProblem)
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes")):
        found = error_origin.explained(error)
        assert isinstance(found, EnvironmentProblem) and "Memory ran out" in message_of(found)
    assert isinstance(error_origin.explained(KeyError("x")), Defect)
    ours = raised(lambda: importlib.import_module("adaptive_bench.no_such_module"))
    assert isinstance(error_origin.explained(ours), Defect)
    blamed = error_origin.explained(KeyError("x"), "the method 'mine'")
    assert isinstance(blamed, PluginFault) and "the method 'mine'" in str(blamed)
    blamed = error_origin.explained(KeyError("x"), "the task 'mine'")
    assert "the task 'mine'" in str(blamed) and "filters, metrics and aggregations" in str(blamed)
    own = UsageError("x")
    assert error_origin.explained(own) is own


def test_foreign_text_becomes_one_printable_line():
    assert one_line("a\x1b[31mb\x1b]0;title\x07c\nd\te\u202ef\x00") == "abc d ef"
    assert one_line("x" * 5000, 10) == "xxxxxxxxxx ... (cut, 5000 characters)"

    class Mute(Exception):
        def __str__(self):
            raise ValueError

    assert message_of(Mute()) == "(its message cannot be shown: ValueError)"


def test_several_problems_have_the_code_of_the_gravest():
    both = SeveralProblems([EnvironmentProblem("a"), UsageError("b")])
    assert both.exit_code == 2
    assert "(1) Environment problem: a (2) Usage error: b" in str(both)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"torch.py": "raise ImportError('libcudart.so: no such file')"}, "libcudart.so: no such file"),
        ({"lm_eval.py": "import nowhere_at_all"}, "No module named 'nowhere_at_all'"),
    ],
)
def test_a_package_that_cannot_be_imported_is_no_defect(tmp_path, files, said):
    for name, code in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    code = (
        "from adaptive_bench.cli.failures import reported\n"
        "from adaptive_bench.cli.terminal_text import load_libraries\n"
        "with reported(debug=False): load_libraries()"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    told = " ".join(done.stderr.split())
    assert done.returncode == 1 and "Environment problem" in told and "defect" not in told.lower()
    assert said in told and "-m pip install" in told


def test_what_we_say_of_a_plugins_call_stays_as_it_is(plugin):
    mine = plugin("def mine():\n    from adaptive_bench import registry\n    registry.get('models', 'nosuch')\n")
    error = raised(mine)
    assert isinstance(error, UsageError) and error_origin.explained(error) is error


def test_what_we_refuse_of_a_plugin_is_found_at_its_line(plugin):
    mine = plugin("def mine():\n    from adaptive_bench.method import DialSpec\n    DialSpec('share', 0, 1, 2)\n")
    found = error_origin.explained(raised(mine))
    assert type(found) is PluginFault and str(found).startswith("A dial has a range")
    assert "It was given in " in str(found) and "mine.py, line 5, in mine." in str(found)
