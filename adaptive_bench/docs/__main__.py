"""`python -m adaptive_bench.docs docs` writes the methods' pages and the figures of a documentation folder."""

from __future__ import annotations

import sys
from pathlib import Path

from adaptive_bench.docs.figures import figures
from adaptive_bench.docs.methods import pages


def write(folder: Path) -> None:
    """Write all pages and figures, and remove the pages of methods that are gone."""
    methods = pages()
    for old in (folder / "methods").glob("*.md"):
        if old.name not in methods:
            old.unlink()
    for below, files in (("methods", methods), ("figures", figures(folder / "records"))):
        for name, text in files.items():
            (folder / below / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
