"""The published tables, and that of a fresh run, stay what they are, value by value."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

published = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("published.py"))))
KNOWN = json.loads(published.FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one == "smoke" else pytest.mark.slow) for one in published.NAMES]
)
def test_tables(name, tmp_path):
    found, known = published.published(name, tmp_path), KNOWN[name]
    assert found["cells"] == known["cells"]
    moved = [column for column in known["columns"] if found["columns"].get(column) != known["columns"][column]]
    assert not moved, f"Values moved in {moved}: if that is meant, give `python tests/golden/published.py`."
    assert found == known
