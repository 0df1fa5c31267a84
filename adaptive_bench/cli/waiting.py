"""Something on the screen at once: what a command is doing before its own progress display begins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from adaptive_bench.progress import say

READING_TABLES = "Reading the tables; those of entries are computed from their measurements"


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a line while the block runs: a moving one on a terminal, which is gone afterwards, a plain one elsewhere."""
    from rich.console import Console  # nothing waits in `--help`

    console = Console(stderr=True)
    if sys.stderr.isatty() and not console.is_dumb_terminal:
        with console.status(f"{what} ..."):
            yield
    else:
        say(f"{what} ...", sys.stderr)
        yield


def load_libraries() -> None:
    """Import what takes seconds, with a word about it; nothing is said where it is there already."""
    if "torch" in sys.modules and "lm_eval" in sys.modules:
        return
    with waiting("Loading PyTorch, transformers and lm-eval"):
        import adaptive_bench.runs  # noqa: F401
