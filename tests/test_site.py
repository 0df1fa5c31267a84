"""The documentation site: every page is in its navigation and every link leads somewhere."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent


def _pages(entries):
    for entry in entries:
        found = entry if isinstance(entry, str) else next(iter(entry.values()))
        yield from [found] if isinstance(found, str) else _pages(found)


def test_every_page_is_in_the_navigation():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(_pages(settings["nav"])) == sorted(there)


@pytest.mark.slow
def test_it_builds_without_a_warning(tmp_path):
    pytest.importorskip("material", reason="needs mkdocs-material: pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "methods" / "index.html").is_file()
