"""Starts processes that run the program's main file again only if they need what it registers.

By default Python has each of them run that file (as `__mp_main__`), and with it a call of `run` that is not guarded by
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
        sys.modules["__main__"] = ModuleType("__main__")  # has no `__file__`, so `multiprocessing` runs no main file
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main


def context(*, runs_main: bool) -> SpawnContext:
    """Return a context that starts such processes.

    Args:
        runs_main: Whether each process runs the program's main file first.
    """
    found = SpawnContext()
    if not runs_main:
        found.Process = _WithoutMain  # type: ignore[misc]
    return found


def check_main() -> None:
    """Refuse to start processes from a process that was itself just started and still runs the program's main file.

    Raises:
        UsageError: This is such a process.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # multiprocessing itself checks this
        main = getattr(sys.modules["__main__"], "__file__", None) or sys.argv[0]
        raise UsageError(
            f"The processes of a run get what a script registers by running the script again, so the script must not "
            f'begin a run unguarded, got {main}. Put the call under if __name__ == "__main__":, or move what is '
            f"registered to a file of its own and load that with load_plugin."
        )
