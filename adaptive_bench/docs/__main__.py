"""`python -m adaptive_bench.docs docs`: write the methods' pages and the figures of a documentation folder."""

from __future__ import annotations

import sys
from pathlib import Path

from adaptive_bench.docs import figures, methods

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    methods.write(folder / "methods")
    figures.write(folder / "figures", records=folder / "records")
