"""The documentation site: every page is in its navigation, every link leads somewhere, and it is complete by itself."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import adaptive_bench
from adaptive_bench import method

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
GENERATED = {"first_steps.md"}  # from the notebook, while the site is built
FOREIGN = re.compile(
    r'<(?:script|img|iframe)[^>]*\ssrc="(?:https?:)?//|<link[^>]*rel="stylesheet"[^>]*href="(?:https?:)?//'
)


def _pages(entries):
    for entry in entries:
        found = entry if isinstance(entry, str) else next(iter(entry.values()))
        yield from [found] if isinstance(found, str) else _pages(found)


@pytest.fixture
def site():
    for package in ("mkdocs", "latex2mathml"):
        pytest.importorskip(package, reason="needs the docs extra: pip install '.[docs]'")
    from adaptive_bench.docs import mkdocs_hook as site

    return site


def test_every_page_is_in_the_navigation():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(_pages(settings["nav"])) == sorted(there | GENERATED)


def test_it_builds_without_a_warning(tmp_path, site):
    for package in ("material", "mkdocstrings_handlers.python"):
        pytest.importorskip(package, reason="needs the docs extra: pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")
    }
    for name, text in pages.items():
        assert not FOREIGN.search(text), f"{name} asks another server"
        assert "arithmatex" not in text and not re.search(r"<m[ion]>\\", text), (
            f"{name} has an equation nobody can read"
        )
        for source in re.findall(r'<img[^>]*\ssrc="([^":]+)"', text):
            assert (tmp_path / name).parent.joinpath(source).is_file(), f"{name} lacks the picture {source}"
    concepts, statistics = pages["concepts/index.html"], pages["statistics/index.html"]
    assert 'display="block"><mrow><mfrac>' in statistics
    assert f"adaptive-bench {adaptive_bench.__version__}" in concepts and 'href="../board/index.html"' in concepts
    assert 'href="../first_steps/"' in pages["python/index.html"] and "find_backbone" in pages["first_steps/index.html"]
    assert 'id="adaptive_bench.method.base.Method.decide"' in pages["reference/index.html"]


def test_the_reference_has_every_public_name():
    listed = set(re.findall(r"^::: (\S+)$", (ROOT / "docs/reference.md").read_text(encoding="utf-8"), re.MULTILINE))
    for home in (adaptive_bench, method):
        for name in home.__all__:
            thing = getattr(home, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                assert f"{thing.__module__}.{thing.__qualname__}" in listed


def test_equations_become_mathml_and_the_notebook_a_page(site):
    inline, block = r'<p>if <span class="arithmatex">\(a &lt; b\)</span></p>', r"\[\frac12\]"
    html = site.rendered(f'{inline}<div class="arithmatex">{block}</div>')
    assert html.startswith("<p>if <math") and "<mo>&#x0003C;</mo>" in html
    assert 'display="block"' in html and "<mfrac>" in html and "arithmatex" not in html
    cells = [("markdown", ["# Title\n", "\n", "Text."]), ("code", ["a = 1\n", "a"])]
    text = site.page_of({"cells": [{"cell_type": kind, "source": source} for kind, source in cells]})
    assert text.startswith("# Title\n\nText.\n\n[") and text.endswith("```python\na = 1\na\n```\n")
    assert "(first_steps.ipynb)" in text
