"""`python -m adaptive_bench.docs docs` writes the methods' pages of a documentation folder."""

from __future__ import annotations

import sys
from pathlib import Path

from adaptive_bench.docs.methods import pages


def write(folder: Path) -> None:
    """Write all pages, and remove the pages of methods that are gone."""
    written = pages()
    for old in (folder / "methods").glob("*.md"):
        if old.name not in written:
            old.unlink()
    for name, text in written.items():
        (folder / "methods" / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
