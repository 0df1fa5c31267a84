"""What a user sees when something goes wrong: one paragraph and an exit code; the traceback only with `--debug`."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from adaptive_bench.errors import AdaptiveBenchError

_WIDTH = 100

# `main` reads it from the arguments before Typer parses them; it is declared so that `--help` shows it.
Debug = Annotated[bool, typer.Option("--debug", help="Show library messages, and the traceback of an error.")]


@contextmanager
def reported(debug: bool) -> Iterator[None]:
    """End the process with one paragraph on stderr instead of a traceback.

    Args:
        debug: Let errors through with their traceback.
    """
    try:
        yield
    except AdaptiveBenchError as error:
        if debug:
            raise
        _end(f"Error: {error}", error.exit_code)
    except Exception as error:  # the outermost boundary: nothing is swallowed, the process ends
        if debug:
            raise
        _end(
            f"Unexpected {type(error).__name__}: {error}. This is a defect of adaptive-bench or of a plugin; finished "
            f"work is kept on disk. The same command with --debug shows where it happened.",
            AdaptiveBenchError.exit_code,
        )


def _end(message: str, exit_code: int) -> None:
    # Paths and commands are meant for copying: they are never broken.
    wrapped = textwrap.fill(" ".join(message.split()), _WIDTH, break_long_words=False, break_on_hyphens=False)
    print(wrapped, file=sys.stderr)
    sys.exit(exit_code)
