"""What of the code a key knows: versions of ours, the files of a plugin."""

import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from adaptive_bench import registry, task
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store import keys

METHOD = """
from adaptive_bench.method import Decision, DialSpec, Method, register
{imports}

@register("methods", "{name}")
class Mine({base}):
    dial = DialSpec("share", minimum=0.0, maximum=1.0, skip_nothing=0.0)
"""


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    forget()
    yield
    forget()


def forget():
    keys._loaded.clear()
    for cached in (keys._files, keys._mentioned):
        cached.cache_clear()


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def plugin(path, name="mine", imports="", base="Method"):
    return write(path, METHOD.format(name=name, imports=imports, base=base))


def digest(name="mine"):
    forget()
    return keys.code_behind(name, "training")["source"]


def test_methods_of_ours_have_versions_and_know_whom_they_build_on():
    every = {name: keys.code_behind(name, "training") for name in registry.names("methods")}
    assert set(every["gated"]["methods"]) == {"gated", "gateskip"}
    assert set(every["mod"]["methods"]) == {"mod"}
    assert all("source" not in about for about in every.values())
    assert {"training", "engine", "model", "method"} < every["mod"].keys()
    assert "training" not in keys.code_behind("mod", "evaluation")
    assert len({keys.code_of(name) for name in every}) == len(every)


def test_a_comment_and_a_rename_change_no_code_and_a_raised_version_that_of_those_it_concerns(monkeypatch, tmp_path):
    home = shutil.copytree(Path(registry.file_of("methods", "gateskip")).parent, tmp_path / "methods")
    monkeypatch.setattr(registry, "file_of", lambda group, name: home / f"{name}.py")
    before = {name: keys.code_of(name) for name in ("gateskip", "gated", "mod")}
    forget()
    text = (home / "gateskip.py").read_text().replace("decide", "choose")
    write(home / "gateskip.py", text + "\n# a comment, and no new number\n")
    assert {name: keys.code_of(name) for name in before} == before
    forget()
    write(home / "gateskip.py", (home / "gateskip.py").read_text().replace("\nVERSION = ", "\nVERSION = 1"))
    assert [name for name in before if keys.code_of(name) != before[name]] == ["gateskip", "gated"]
    forget()
    monkeypatch.setitem(keys.FLOORS, "engine", 2)
    assert keys.code_of("mod") != before["mod"]


def test_how_dials_are_solved_for_concerns_the_methods_that_solve_and_plugins(tmp_path):
    registry.load_plugin(plugin(tmp_path / "mine.py"))
    for name in registry.names("methods"):
        concerned = registry.is_foreign("methods", name) or registry.get("methods", name).solves_dial
        assert ("dials" in keys.code_behind(name, "evaluation")) == concerned, name


@pytest.mark.parametrize(
    ("imports", "helper"),
    [
        ("from helper_b import share", "helper_b.py"),
        ("import helper_d.deep", "helper_d/__init__.py"),
        ("def later():\n    import helper_e", "helper_e.py"),
        ("import outer_f", "helper_f.py"),
    ],
)
def test_an_edited_helper_is_noticed(tmp_path, monkeypatch, imports, helper):
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path / "helper_d" / "__init__.py", "")
    write(tmp_path / "helper_d" / "deep.py", "share = 0.1")
    write(tmp_path / "outer_f.py", "from helper_f import share")
    write(tmp_path / helper, "share = 0.2")
    registry.load_plugin(plugin(tmp_path / "mine.py", imports=imports))
    before = digest()
    assert digest() == before
    write(tmp_path / helper, "share = 0.3")
    assert digest() != before


def test_a_base_class_of_another_plugin_file_and_the_version_of_one_of_ours_are_noticed(tmp_path):
    base = plugin(tmp_path / "parent.py", "parent")
    registry.load_plugin(base)
    of_parent = {"imports": "from adaptive_bench import registry", "base": 'registry.get("methods", "parent")'}
    registry.load_plugin(plugin(tmp_path / "mine.py", **of_parent))
    before = digest()
    write(base, base.read_text() + "\nSHARE = 0.3\n")
    assert digest() != before
    of_ours = {"imports": "from adaptive_bench.methods.gateskip import GateSkip", "base": "GateSkip"}
    registry.load_plugin(plugin(tmp_path / "ours.py", "ours", **of_ours))
    assert set(keys.code_behind("ours", "training")["methods"]) == {"gateskip"}


def test_neither_place_nor_neighbours_matter(tmp_path):
    first = plugin(tmp_path / "here" / "mine.py")
    registry.load_plugin(first)
    before = digest()
    registry.load_plugin(plugin(tmp_path / "here" / "other.py", "other"))
    assert digest() == before
    registry._registered.clear()
    registry.load_plugin(Path(shutil.copytree(first.parent, tmp_path / "there")) / "mine.py")
    assert digest() == before


def test_a_class_without_a_file_is_known_by_what_it_does():
    from adaptive_bench.method import DialSpec, Method

    def made(share, base=Method):
        class Mine(base):
            kept = share

            def decide(self, view):
                return lambda: view + 1

        return Mine

    def other():
        class Mine(made(0.1)):
            def decide(self, view):
                return lambda: view + 2

        return Mine

    digests = [keys.class_digest(made(0.1)), keys.class_digest(made(0.2)), keys.class_digest(other())]
    assert digests[0] == keys.class_digest(made(0.1)) and len(set(digests)) == 3
    assert keys.class_digest(made(0.1, other())) != keys.class_digest(made(0.1, made(0.3)))
    dials = [keys.class_digest(made(DialSpec("share", 0.0, most, 0.0))) for most in (0.5, 0.5, 0.6)]
    assert dials[0] == dials[1] != dials[2]


def test_of_a_package_every_file_counts_and_of_a_file_alone_what_it_names(tmp_path):
    for name, other in (("package", "deep/numbers.json"), ("alone", "numbers.json")):
        made = plugin(tmp_path / name / "mine.py", name, imports='NUMBERS = "numbers.json"')
        if name == "package":
            write(made.with_name("__init__.py"), "")
        number = write(made.parent / other, "1")
        registry.load_plugin(made)
        before = digest(name)
        write(number, "2")
        assert digest(name) != before
        made.write_text(made.read_text() + "# a comment\n")
        with pytest.raises(EnvironmentProblem, match=rf"{name}/mine\.py changed since. Start Python again"):
            keys.code_behind(name, "training")


def test_code_of_ours_is_no_plugin_s(tmp_path):
    places = [task.__file__, "/proc/self/ns/pid"]
    named = write(tmp_path / "registers.py", f"from adaptive_bench import task\nPLACES = {places}")
    assert keys.plugin_digest([Path(task.__file__)]) == keys.plugin_digest([])
    assert keys._files(named) == {named.resolve()}


def test_records_name_the_commit_of_this_checkout_and_of_no_other_project(monkeypatch, tmp_path):
    def git(*what):
        name = ("-c", "user.name=A", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", tmp_path, *name, *what], check=True, capture_output=True)

    monkeypatch.setattr(keys, "__file__", str(write(tmp_path / "source.py", "1")))
    git("init")
    assert keys.commit.__wrapped__() == {}
    git("add", "source.py")
    git("commit", "-m", "one")
    assert re.fullmatch("[0-9a-f]{40}", keys.commit.__wrapped__()["commit"])
    write(tmp_path / "source.py", "2")
    assert re.fullmatch("[0-9a-f]{40}-dirty", keys.commit.__wrapped__()["commit"])
