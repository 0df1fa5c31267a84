"""What is registered by whom, plugin files, and whose fault an error is."""

import errno
import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from adaptive_bench import errors, registry
from adaptive_bench.errors import (
    Defect,
    EnvironmentProblem,
    PluginFault,
    SeveralProblems,
    UsageError,
    message_of,
    one_line,
)


@pytest.fixture(autouse=True)
def own_registrations(monkeypatch):
    """What a test registers is gone after it, and so are the entry points it invents."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(errors, "_watched", set(errors._watched))
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()


def _install(monkeypatch, *entries):
    monkeypatch.setattr(
        registry, "entry_points", lambda group: [EntryPoint(name, value, group) for name, value in entries]
    )


REGISTER = "from adaptive_bench.registry import register\n"


@pytest.fixture
def loaded(tmp_path):
    """`loaded(code)`: a plugin file with that code, which was loaded."""

    def load(code, name="mine.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(code)
        registry.load_plugin(file)
        return file

    return load


def test_installed_names_are_loaded_on_demand_and_a_typo_is_told_the_closest(monkeypatch):
    _install(monkeypatch, ("path", "pathlib:Path"), ("broken", "no_such_module:thing"))
    assert registry.names("models") == ["broken", "path"]
    assert registry.get("models", "path") is Path
    with pytest.raises(PluginFault, match=r"'broken' \(no_such_module:thing\)"):
        registry.get("models", "broken")
    with pytest.raises(UsageError, match=r"No model is called 'pth'. Did you mean 'path'\?"):
        registry.get("models", "pth")
    with pytest.raises(UsageError, match=r"Known: broken, path\."):
        registry.get("models", "zzz")


def test_a_name_is_registered_once(monkeypatch):
    _install(monkeypatch, ("taken", "pathlib:Path"))
    registry._installed.cache_clear()
    with pytest.raises(PluginFault, match="'taken' exists already"):
        registry.register("methods", "taken")(object())
    _install(monkeypatch, ("same", "a:x"), ("same", "b:x"))
    registry._installed.cache_clear()
    with pytest.raises(EnvironmentProblem, match="claimed by a:x and by b:x"):
        registry.names("methods")


def test_a_package_may_register_what_its_entry_point_names(monkeypatch):
    class Mine: ...

    Mine.__module__, Mine.__qualname__ = "mine", "Mine"
    _install(monkeypatch, ("mine", "mine:Mine"))
    assert registry.register("methods", "mine")(Mine) is Mine
    assert registry._registered == {}


def test_a_plugin_file_is_the_origin_of_what_it_registers_wherever_that_was_made(loaded):
    """Worker processes load the file again: they have to find the one with the registration. Files of one name stay
    apart; that of a name is found without importing it.
    """
    mine = loaded(REGISTER + "@register('methods', 'mine')\nclass Mine:\n    here = __file__\n")
    other = loaded(REGISTER + "@register('methods', 'other')\nclass Mine:\n    here = __file__\n", "other/mine.py")
    assert {"mine", "other"} <= set(registry.names("methods"))
    for name, file in (("mine", mine), ("other", other)):
        assert registry.get("methods", name).here == str(file)
        assert Path(sys.modules[registry.get("methods", name).__module__].__file__) == file
        assert registry.origin("methods", name) == str(file) and registry.file_of("methods", name) == file
    assert registry.file_of("methods", "gateskip").name == "gateskip.py"
    assert registry.file_of("methods", "nobody") is None
    of_elsewhere = "from pathlib import Path\nregister('models', 'path')(Path)\nregister('models', 'one')(Path('x'))\n"
    borrowed = loaded(REGISTER + of_elsewhere, "borrowed.py")
    assert {registry.origin("models", name) for name in ("path", "one")} == {str(borrowed)}


@pytest.mark.parametrize(
    ("name", "said"), [("absent.py", r"there is no '.*absent.py'"), ("notes.txt", r"notes.txt'. Name one that ends")]
)
def test_plugin_must_be_a_python_file(tmp_path, name, said):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match=said):
        registry.load_plugin(tmp_path / name)


BESIDE = "modules beside it are found on PYTHONPATH"


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("x = 1\n", UsageError, "above its class"),
        ("def broken(:", PluginFault, r"mine\.py, line 1"),
        ("import sys\nsys.exit(3)", PluginFault, r"mine\.py, line 2"),
        ("from helper_beside import x\n", PluginFault, BESIDE),
        ("from .helper_beside import x\n", PluginFault, BESIDE),
    ],
)
def test_a_file_that_cannot_be_loaded_or_registers_nothing_is_told_why(loaded, tmp_path, code, error, said):
    (tmp_path / "helper_beside.py").write_text("x = 1\n")
    with pytest.raises(error, match=said):
        loaded(code)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("register('metods', 'a')", "got 'metods'"),
        ("register('methods', 'a b')", "got 'a b'. Choose one like 'my_method'"),
    ],
)
def test_a_wrong_registration_names_the_line_of_the_plugin_file(loaded, call, said):
    with pytest.raises(PluginFault, match=said) as caught:
        loaded(f"{REGISTER}\n{call}\n")
    assert re.search(r"It was given in .*mine\.py, line 3, in <module>\.", str(errors.explained(caught.value)))


def test_what_a_plugin_prints_leaves_standard_output_alone(loaded, capsys):
    says = "import sys\nprint('hello')\nsys.stdout.write('you')\nsys.stdout.flush()\n"
    loaded(f"{REGISTER}{says}register('models', 'mine')(object)\n")
    assert capsys.readouterr() == ("", "hello\nyou")


# Whose fault an error is.


@pytest.fixture
def plugin(loaded):
    """`plugin(code)`: what a plugin file with that code registers as the model `mine`."""

    def load(code):
        loaded(f"{REGISTER}@register('models', 'mine')\n{code}")
        return registry.get("models", "mine")

    return load


def raised(call):
    with pytest.raises(BaseException) as caught:
        call()
    return caught.value


def test_a_line_of_a_plugin_is_named(plugin):
    """The innermost one, although a library raised."""
    found = errors.explained(raised(plugin("def mine():\n    import json\n    return json.loads('{')\n")))
    assert isinstance(found, PluginFault)
    assert "mine.py, line 5, in mine" in str(found) and "JSONDecodeError" in str(found)


def test_what_a_plugin_error_was_turned_into_is_still_its_fault(plugin):
    mine = plugin("def mine():\n    return {}['x']\n")

    def call():
        try:
            mine()
        except KeyError as error:
            raise RuntimeError("no value") from error

    assert isinstance(errors.explained(raised(call)), PluginFault)


def test_other_errors_are_the_machine_or_a_suspect_or_ours():
    full = OSError(errno.ENOSPC, "No space left on device")
    assert isinstance(errors.explained(full), EnvironmentProblem)
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes")):
        found = errors.explained(error)
        assert isinstance(found, EnvironmentProblem) and "Memory ran out" in message_of(found)
    assert isinstance(errors.explained(KeyError("x")), Defect)
    ours = raised(lambda: importlib.import_module("adaptive_bench.no_such_module"))
    assert isinstance(errors.explained(ours), Defect)
    blamed = errors.explained(KeyError("x"), "the method 'mine'")
    assert isinstance(blamed, PluginFault) and "the method 'mine'" in str(blamed)
    blamed = errors.explained(KeyError("x"), "the task 'mine'")
    assert "the task 'mine'" in str(blamed) and "filters, metrics and aggregations" in str(blamed)
    own = UsageError("x")
    assert errors.explained(own) is own


def test_foreign_text_becomes_one_printable_line():
    assert one_line("a\x1b[31mb\x1b]0;title\x07c\nd\te\u202ef\x00") == "abc d ef"
    assert one_line("x" * 5000, 10) == "xxxxxxxxxx ... (cut, 5000 characters)"
    mute = type("Mute", (Exception,), {"__str__": lambda self: int("x")})
    assert message_of(mute()) == "(its message cannot be shown: ValueError)"
    both = SeveralProblems([EnvironmentProblem("a"), UsageError("b")])
    assert both.exit_code == 2, "that of the gravest"
    assert "(1) Environment problem: a (2) Usage error: b" in str(both)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("torch.py", "raise ImportError('libcudart.so: no such file')", "libcudart.so: no such file"),
        ("lm_eval.py", "import nowhere_at_all", "No module named 'nowhere_at_all'"),
    ],
)
def test_a_package_that_cannot_be_imported_is_no_defect(tmp_path, name, code, said):
    (tmp_path / name).write_text(code)
    program = (
        "from adaptive_bench.cli import reported\n"
        "from adaptive_bench.cli.terminal_text import load_libraries\n"
        "with reported(debug=False): load_libraries()"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    told = " ".join(done.stderr.split())
    assert done.returncode == 1 and "Environment problem" in told and "defect" not in told.lower()
    assert said in told and "-m pip install" in told


def test_what_we_say_of_a_plugins_call_stays_and_what_we_refuse_of_it_is_found_at_its_line(plugin):
    mine = plugin("def mine():\n    from adaptive_bench import registry\n    registry.get('models', 'nosuch')\n")
    error = raised(mine)
    assert isinstance(error, UsageError) and errors.explained(error) is error
    registry._registered.clear()
    mine = plugin("def mine():\n    from adaptive_bench.method import DialSpec\n    DialSpec('share', 0, 1, 2)\n")
    found = errors.explained(raised(mine))
    assert type(found) is PluginFault and str(found).startswith("A dial has a range")
    assert "It was given in " in str(found) and "mine.py, line 5, in mine." in str(found)
