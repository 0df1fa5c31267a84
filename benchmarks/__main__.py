"""Runs the benchmarks one after the other, then writes `docs/benchmarks.md` and its pictures from `results.json`.

    python benchmarks                  # all of them but `gpu`
    python benchmarks decode growth    # some
    python benchmarks page             # the page alone

A benchmark is a file in this folder that can be run as a script; each runs in its own process.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import page

FOLDER = Path(__file__).parent
ON_REQUEST = ("gpu", "gpu_preset")  # run only if named, since they need a machine that few have


def benchmarks() -> list[str]:
    """Names of the files in this folder that are benchmarks."""
    return sorted(
        file.stem
        for file in FOLDER.glob("*.py")
        if file.stem != "__main__" and 'if __name__ == "__main__":' in file.read_text(encoding="utf-8")
    )


def wanted_of(known: list[str], named: list[str]) -> list[str]:
    """The named benchmarks, or without names all except those that run only if named."""
    return [name for name in known if (name in named if named else name not in ON_REQUEST)]


def main(wanted: list[str]) -> None:
    """Run the wanted benchmarks, or all, and write the page."""
    known = benchmarks()
    unknown = set(wanted) - {*known, "page"}
    if unknown:
        sys.exit(f"Benchmarks are {', '.join(known)} (and page), got {', '.join(sorted(unknown))}.")
    failed = []
    for name in wanted_of(known, wanted):
        print(f"== {name}", flush=True)
        start_s = time.perf_counter()
        if subprocess.run([sys.executable, str(FOLDER / f"{name}.py")]).returncode:
            failed.append(name)  # goes on, so that a benchmark without its data does not stop the others
        print(f"== {name} took {time.perf_counter() - start_s:.0f} s", flush=True)
    page.write()
    if failed:
        sys.exit(f"Not measured: {', '.join(failed)} (the reason is above). The page shows their last results.")


if __name__ == "__main__":
    main(sys.argv[1:])
