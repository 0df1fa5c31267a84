"""What users import from: the package itself, loaded lazily, and one module for authors of methods."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import adaptive_bench

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
METHOD_FILES = sorted(ROOT.glob("methods/*.py"))
PAGES = [ROOT / "docs/tutorial_add_a_method.md", ROOT / "README.md"]
TEMPLATE = ROOT / "adaptive_bench/cli/templates/new_method/method.txt"


@pytest.mark.parametrize("name", [name for name in adaptive_bench.__all__ if not name.startswith("_")])
def test_a_name_of_the_package_is_that_of_its_home(name):
    home = importlib.import_module(adaptive_bench._HOMES[name])
    assert getattr(adaptive_bench, name) is getattr(home, name)


def test_the_stub_tells_the_same_names():
    stub = (ROOT / "adaptive_bench/__init__.pyi").read_text()
    assert set(re.findall(r"import (\w+) as \1", stub)) == set(adaptive_bench._HOMES)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(adaptive_bench, "nothing")  # noqa: B009 - the lookup is the test


def imported(source):
    """Modules of the core that a source imports from."""
    nodes = ast.walk(ast.parse(source))
    return {
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and not node.level and str(node.module).startswith("adaptive_bench")
    }


@pytest.mark.parametrize("file", METHOD_FILES, ids=lambda file: file.stem)
def test_a_method_file_imports_from_the_public_face_alone(file):
    assert imported(file.read_text()) <= {"adaptive_bench.method"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_imports_methods_from_the_public_face_alone(page):
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        if "@register" in block:
            assert imported(block) == {"adaptive_bench.method"}


def test_a_new_method_starts_from_the_public_face_alone():
    source = TEMPLATE.read_text().replace("$class_name", "Mine").replace("${class_name}", "Mine")
    assert imported(re.sub(r"\$\w+", "mine", source)) == {"adaptive_bench.method"}
