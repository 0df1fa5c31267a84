"""Every edit of this distribution's own code is seen: of the core, of a method with its helpers, of a task's YAML."""

import pytest

from adaptive_bench import closure, code_digest, own_code
from adaptive_bench.runs.planning import memory

FILES = {
    "core/engine/masked.py": "x = 1\n",
    "core/tables/intervals.py": "CONFIDENCE = 0.95\n",
    "methods/__init__.py": "",
    "methods/thrifty.py": "from .parts.gates import shut\nfrom .mixture import mix\n",
    "methods/mixture.py": "def mix():\n    return 1\n",
    "methods/parts/gates.py": "from ..other import more\n",
    "methods/other.py": "more = 1\n",
    "methods/alone.py": "y = 1\n",
    "tasks/__init__.py": "",
    "tasks/sums/sums.yaml": "task: sums\nmax_gen_toks: 64  # tokens\n",
    "tasks/answers.py": "z = 1\n",
    "leaderboard/__init__.py": "",
}


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A distribution of a few files."""
    home = tmp_path / "code"
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    homes = lambda package: home / (package.partition(".")[2] or "core")  # noqa: E731
    monkeypatch.setattr(own_code, "_home", homes)
    monkeypatch.setattr(own_code.registry, "file_of", lambda group, name: home / "methods" / f"{name}.py")
    monkeypatch.setattr(own_code.registry, "is_foreign", lambda group, name: False)
    return home


def digest(method, out):
    closure.own_files.cache_clear()
    code_digest._shared.cache_clear()
    found = code_digest.code_digest.__wrapped__(method, out).split(".")
    code_digest._shared.cache_clear()
    return dict(zip(code_digest.PARTS, found, strict=True))


@pytest.mark.parametrize(
    ("file", "text", "moves"),
    [
        ("core/engine/masked.py", "x = 2\n", {"core"}),
        ("core/engine/masked.py", "x = 1  # one\n", set()),
        ("core/tables/intervals.py", "CONFIDENCE = 0.9\n", set()),  # no record depends on it
        ("methods/thrifty.py", FILES["methods/thrifty.py"] + "x = 2\n", {"method"}),
        ("methods/mixture.py", "def mix():\n    return 2\n", {"method"}),
        ("methods/parts/gates.py", FILES["methods/parts/gates.py"] + "x = 2\n", {"method"}),
        ("methods/other.py", "more = 2\n", {"method"}),
        ("methods/alone.py", "y = 2\n", set()),
        ("tasks/answers.py", "z = 2\n", {"tasks"}),
        ("tasks/sums/sums.yaml", "task: sums\nmax_gen_toks: 65  # tokens\n", {"tasks"}),
        ("tasks/sums/sums.yaml", 'task: sums\nmax_gen_toks: "64"\n', {"tasks"}),
        ("tasks/sums/sums.yaml", "# Sums.\ntask:   sums\nmax_gen_toks: 64\n", set()),
    ],
)
def test_an_edit_moves_the_digest_of_its_part_and_what_a_run_remembers(code, tmp_path, file, text, moves):
    before, remembered = digest("thrifty", tmp_path), memory._source.__wrapped__()
    (code / file).write_text(text)
    after = digest("thrifty", tmp_path)
    assert {part for part in before if before[part] != after[part]} == moves
    assert memory._source.__wrapped__() != remembered  # whatever its bytes mean


def test_the_list_holds_all_that_makes_results():
    names = {"/".join(path.parts[-2:]) for path in own_code.everything()}
    assert {"engine/masked.py", "tables/intervals.py", "methods/beta_mixture.py", "tasks/answers.py"} <= names
    assert {"nano/nano_math.yaml", "tasks/letter_answers.yaml", "leaderboard/markdown.py"} <= names
    assert {"methods/beta_mixture.py"} < {"/".join(path.parts[-2:]) for path in own_code.of_method("free")}
