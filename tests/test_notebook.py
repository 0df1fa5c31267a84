"""The notebook runs from its first cell to its last, as it is."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

NOTEBOOK = Path(__file__).parent.parent / "docs" / "first_steps.ipynb"
nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel (the dev extra)")


def printed(cell):
    """What a cell shows, as text."""
    parts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"]]
    return "".join("".join(part) for part in parts)


def test_every_cell_runs(tmp_path):
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [printed(cell) for cell in code]
    assert shown[1].count("asked") == 3 and "tokens 0.0%" in shown[1]
    assert "generated_text" in shown[2]
    assert "gateskip" in shown[3] and "dense" in shown[3]
    assert "'tokens': 0." in shown[4]


def test_it_is_stored_without_results():
    """What a notebook shows depends on who ran it last: that is no change of ours."""
    import json

    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
