"""Starts processes, which run the program's main file again only where they need what it registers.

Python would have each of them run that file (as `__mp_main__`), and with it a call of `run` that stands there without
`if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from adaptive_bench.errors import UsageError


class _WithoutMain(SpawnProcess):
    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # `multiprocessing` finds no file to name
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main


def context(*, runs_main: bool) -> SpawnContext:
    """How to start such processes.

    Args:
        runs_main: Whether each runs the program's main file first.
    """
    found = SpawnContext()
    if not runs_main:
        found.Process = _WithoutMain  # type: ignore[misc]
    return found


def check_main() -> None:
    """Do not begin here what starts processes, where this is one that still runs the main file of the program.

    Raises:
        UsageError: It is.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself asks
        main = getattr(sys.modules["__main__"], "__file__", None) or sys.argv[0]
        raise UsageError(
            f"The processes of a run get what a script registers by running the script again, so that it must not "
            f'begin a run whoever runs it, got {main}. Put the call under if __name__ == "__main__":, or move what is '
            f"registered to a file of its own and load that with load_plugin."
        )
