"""What of the code a key knows: versions of ours, the whole source of a plugin's."""

import shutil
import textwrap
from pathlib import Path

import pytest

from adaptive_bench import closure, registry, source

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
    for cached in (closure._walked, closure.own_files, source._version, source._solves_dial):
        cached.cache_clear()


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def plugin(path: Path, name: str = "mine", imports: str = "", base: str = "Method") -> Path:
    return write(path, METHOD.format(name=name, imports=imports, base=base))


def digest(name: str = "mine"):
    forget()
    return source.code_behind(name, "training")["source"]


def test_methods_of_ours_have_versions_and_know_whom_they_build_on():
    every = {name: source.code_behind(name, "training") for name in registry.names("methods")}
    assert set(every["gated"]["methods"]) == {"gated", "gateskip"}
    assert set(every["mod"]["methods"]) == {"mod"}
    assert all("source" not in about for about in every.values())
    assert {"training", "engine", "model", "method"} < every["mod"].keys()
    assert "training" not in source.code_behind("mod", "evaluation")
    assert len({source.code_of(name) for name in every}) == len(every)


def test_a_raised_version_changes_the_code_of_those_it_concerns(monkeypatch, tmp_path):
    home = shutil.copytree(Path(registry.file_of("methods", "gateskip")).parent, tmp_path / "methods")
    monkeypatch.setattr(registry, "file_of", lambda group, name: home / f"{name}.py")
    before = {name: source.code_of(name) for name in ("gateskip", "gated", "mod")}
    forget()
    write(home / "gateskip.py", (home / "gateskip.py").read_text() + "\n# a comment, and no new number\n")
    assert {name: source.code_of(name) for name in before} == before
    forget()
    write(home / "gateskip.py", (home / "gateskip.py").read_text() + "\nVERSION = 2\n")
    assert [name for name in before if source.code_of(name) != before[name]] == ["gateskip", "gated"]
    forget()
    monkeypatch.setitem(source.FLOORS, "engine", 2)
    assert source.code_of("mod") != before["mod"]


def test_how_dials_are_solved_for_concerns_the_methods_that_solve_and_plugins(tmp_path):
    registry.load_plugin(plugin(tmp_path / "mine.py"))
    for name in registry.names("methods"):
        concerned = registry.is_foreign("methods", name) or registry.get("methods", name).solves_dial
        assert ("dials" in source.code_behind(name, "evaluation")) == concerned, name


@pytest.mark.parametrize(
    ("imports", "helper"),
    [
        ("import helper_a", "helper_a.py"),
        ("from helper_b import share", "helper_b.py"),
        ("import helper_c.deep", "helper_c/deep.py"),
        ("import helper_d.deep", "helper_d/__init__.py"),
        ("def later():\n    import helper_e", "helper_e.py"),
        ("import outer_f", "helper_f.py"),
    ],
)
def test_an_edited_helper_is_noticed(tmp_path, monkeypatch, imports, helper):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("helper_c", "helper_d"):
        write(tmp_path / name / "__init__.py", "")
        write(tmp_path / name / "deep.py", "share = 0.1")
    write(tmp_path / "outer_f.py", "from helper_f import share")
    write(tmp_path / helper, "share = 0.2")
    registry.load_plugin(plugin(tmp_path / "mine.py", imports=imports))
    before = digest()
    assert digest() == before
    write(tmp_path / helper, "share = 0.3")
    assert digest() != before


def test_a_base_class_of_another_plugin_file_is_noticed(tmp_path):
    base = plugin(tmp_path / "parent.py", "parent")
    registry.load_plugin(base)
    registry.load_plugin(
        plugin(
            tmp_path / "mine.py", imports="from adaptive_bench import registry", base='registry.get("methods", "base")'
        )
    )
    before = digest()
    write(base, base.read_text() + "\nSHARE = 0.3\n")
    assert digest() != before


def test_a_plugin_knows_the_version_of_the_method_of_ours_it_builds_on(tmp_path):
    text = "from adaptive_bench.methods.gateskip import GateSkip"
    registry.load_plugin(plugin(tmp_path / "mine.py", imports=text, base="GateSkip"))
    assert set(source.code_behind("mine", "training")["methods"]) == {"gateskip"}


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
    from adaptive_bench.method import Method

    def made(share, base=Method):
        class Mine(base):
            kept = share

            def decide(self, view):
                return lambda: view + 1

        return Mine

    def other(base=Method):
        class Mine(base):
            kept = 0.1

            def decide(self, view):
                return lambda: view + 2

        return Mine

    digests = [closure.class_digest(made(0.1)), closure.class_digest(made(0.2)), closure.class_digest(other())]
    assert digests[0] == closure.class_digest(made(0.1)) and len(set(digests)) == 3
    assert closure.class_digest(made(0.1, other())) != closure.class_digest(made(0.1, made(0.3)))
