import re
import sys
import textwrap
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from adaptive_bench import error_origin, registry
from adaptive_bench.errors import EnvironmentProblem, PluginFault, UsageError


@pytest.fixture(autouse=True)
def own_registrations(monkeypatch):
    """What a test registers is gone after it, and so are the entry points it invents."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(error_origin, "_watched", set(error_origin._watched))
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()


def _install(monkeypatch, *entries):
    def found(group):
        return [EntryPoint(name, value, group) for name, value in entries]

    monkeypatch.setattr(registry, "entry_points", found)


def test_installed_name_is_loaded_on_demand(monkeypatch):
    _install(monkeypatch, ("path", "pathlib:Path"), ("broken", "no_such_module:thing"))
    assert registry.names("models") == ["broken", "path"]
    assert registry.get("models", "path") is Path


def test_unknown_name_suggests_the_closest(monkeypatch):
    _install(monkeypatch, ("gateskip", "pathlib:Path"))
    with pytest.raises(UsageError, match=r"No method is called 'gateskp'. Did you mean 'gateskip'\?"):
        registry.get("methods", "gateskp")
    with pytest.raises(UsageError, match=r"Known: gateskip\."):
        registry.get("methods", "zzz")


def test_installed_plugin_that_cannot_be_imported_says_which(monkeypatch):
    _install(monkeypatch, ("broken", "no_such_module:thing"))
    with pytest.raises(PluginFault, match=r"'broken' \(no_such_module:thing\)"):
        registry.get("tasks", "broken")


def test_two_packages_with_one_name_are_an_error(monkeypatch):
    _install(monkeypatch, ("same", "a:x"), ("same", "b:x"))
    with pytest.raises(EnvironmentProblem, match="claimed by a:x and by b:x"):
        registry.names("methods")


def test_plugin_file_registers_and_is_named_as_the_origin(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        textwrap.dedent("""
            from adaptive_bench.registry import register

            @register("methods", "mine")
            class Mine: ...
        """)
    )
    registry.load_plugin(file)
    assert registry.get("methods", "mine").__name__ == "Mine"
    assert "mine" in registry.names("methods")
    assert registry.origin("methods", "mine") == str(file)


def test_a_name_is_registered_once(monkeypatch):
    _install(monkeypatch, ("taken", "pathlib:Path"))
    with pytest.raises(PluginFault, match="'taken' exists already"):
        registry.register("methods", "taken")(object())


def test_a_package_may_register_what_its_entry_point_names(monkeypatch):
    class Mine: ...

    Mine.__module__, Mine.__qualname__ = "mine", "Mine"
    _install(monkeypatch, ("mine", "mine:Mine"))
    assert registry.register("methods", "mine")(Mine) is Mine
    assert registry._registered == {}


def test_the_origin_of_a_thing_made_elsewhere_is_the_file_that_registers_it(tmp_path):
    """Worker processes load the file again: they have to find the one with the registration."""
    file = tmp_path / "borrowed.py"
    file.write_text(
        "from pathlib import Path\nfrom adaptive_bench.registry import register\n"
        "register('models', 'path')(Path)\nregister('models', 'instance')(Path('x'))\n"
    )
    registry.load_plugin(file)
    assert {registry.origin("models", name) for name in ("path", "instance")} == {str(file)}


def test_two_files_of_one_name_stay_apart(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(
            "from adaptive_bench.registry import register\n"
            f"@register('methods', '{folder}')\nclass Mine:\n    here = __file__\n"
        )
        registry.load_plugin(tmp_path / folder / "mine.py")
    modules = [sys.modules[registry.get("methods", folder).__module__] for folder in ("a", "b")]
    assert [Path(module.__file__).parent.name for module in modules] == ["a", "b"]


def test_a_file_that_registers_nothing_is_told_how(tmp_path):
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(UsageError, match="above its class"):
        registry.load_plugin(tmp_path / "empty.py")


@pytest.mark.parametrize(
    ("name", "said"), [("absent.py", r"there is no '.*absent.py'"), ("notes.txt", r"notes.txt'. Name one that ends")]
)
def test_plugin_must_be_a_python_file(tmp_path, name, said):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match=said):
        registry.load_plugin(tmp_path / name)


@pytest.mark.parametrize("source", ["def broken(:", "import sys\nsys.exit(3)"])
def test_plugin_that_cannot_be_imported_is_named(tmp_path, source):
    file = tmp_path / "broken.py"
    file.write_text(source)
    with pytest.raises(PluginFault, match=r"broken\.py, line [12]"):
        registry.load_plugin(file)


def test_the_file_of_a_name_is_found_without_importing_it(tmp_path):
    assert registry.file_of("methods", "gateskip").name == "gateskip.py"
    assert registry.file_of("methods", "nobody") is None
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from adaptive_bench.registry import register\n\n\n@register('methods', 'mine')\nclass Mine:\n    pass\n"
    )
    registry.load_plugin(plugin)
    assert registry.file_of("methods", "mine") == plugin


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("register('mine', 'methods')", r"got 'mine'\. The group comes first: register\('methods', 'mine'\)"),
        ("register('metods', 'a')", "got 'metods'"),
        ("register('methods', 'a b')", "got 'a b'. Choose one like 'my_method'"),
    ],
)
def test_a_wrong_registration_names_the_line_of_the_plugin_file(tmp_path, call, said):
    file = tmp_path / "mine.py"
    file.write_text(f"from adaptive_bench.registry import register\n\n{call}\n")
    with pytest.raises(PluginFault, match=said) as caught:
        registry.load_plugin(file)
    assert re.search(r"It was given in .*mine\.py, line 3, in <module>\.", str(error_origin.explained(caught.value)))


def test_what_a_plugin_prints_leaves_standard_output_alone(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "import sys\nfrom adaptive_bench.registry import register\nprint('hello')\nsys.stdout.write('you')\n"
        "sys.stdout.flush()\nregister('models', 'mine')(object)\n"
    )
    registry.load_plugin(file)
    assert capsys.readouterr() == ("", "hello\nyou")


@pytest.mark.parametrize("line", ["from helper_beside import x", "from .helper_beside import x"])
def test_a_module_beside_a_plugin_is_told_where_it_is_found(line, tmp_path):
    (tmp_path / "helper_beside.py").write_text("x = 1\n")
    (tmp_path / "mine.py").write_text(line + "\n")
    with pytest.raises(PluginFault, match=rf"modules beside it are found on PYTHONPATH.* PYTHONPATH={tmp_path}; "):
        registry.load_plugin(tmp_path / "mine.py")


@pytest.mark.parametrize(
    ("given", "meant"),
    [("train.lr", "train.learning_rate"), ("evaluation.bs", "evaluation.batch_size"), ("train.lorra", "train.lora")],
)
def test_a_name_by_its_initials_is_told_in_full(given, meant):
    known = ["train.learning_rate", "train.lora", "train.batch_size", "evaluation.batch_size"]
    assert registry.did_you_mean(given, known) == f"Did you mean {meant!r}?"
