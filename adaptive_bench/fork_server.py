"""A process with the libraries loaded that has never seen a plugin; others are forked from it within milliseconds.

It is Python's own fork server (`multiprocessing`), started anew and not forked: whatever plugins did to this process,
it knows nothing of it.

Python would have each process run the program's main file again (as `__mp_main__`), and with it a call of `run` that
stands there without `if __name__ == "__main__":`. These run it where they need what it registers, and not otherwise.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess, SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from adaptive_bench.errors import UsageError

# By name: what they import takes seconds, which the server spends while this process goes on.
_PRELOADED = ["adaptive_bench.preloaded_first"]
_PRELOADED += ["adaptive_bench.runs", "adaptive_bench.jobs.pool", "adaptive_bench.methods.dense"]
_PRELOADED += ["lm_eval.tasks", "safetensors.torch", "transformers.integrations.sdpa_attention"]
_PRELOADED += [
    f"transformers.models.{name}.modeling_{name}" for name in ("llama", "mistral", "qwen2", "qwen3", "gemma2")
]
_PRELOADED += ["adaptive_bench.preloaded"]

_NAME = "adaptive-bench"  # of a process that runs the main file again: it knows by it who started it
_UNGUARDED = 78  # how it ends where that file would have it begin the run anew (EX_CONFIG)


@dataclass(frozen=True)
class Surroundings:
    """Where a process works; one that is forked from the server has those in which the server was started.

    Attributes:
        environment: Its variables.
        folder: Its working directory.
    """

    environment: dict[str, str]
    folder: str

    @classmethod
    def here(cls) -> Surroundings:
        """Those of this process."""
        return cls(dict(os.environ), str(Path.cwd()))

    def adopt(self) -> None:
        """Work there as well."""
        for name in os.environ.keys() - self.environment.keys():
            del os.environ[name]
        os.environ.update(self.environment)
        os.chdir(self.folder)


class _Forked(ForkServerProcess):
    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:
        with _without_main():
            return ForkServerProcess._Popen(process_obj)


class _Named(BaseProcess):
    """One that runs the main file, and is told by its name in there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.name = f"{_NAME} {self.name}"


class _ForkedWithMain(_Named, ForkServerProcess):
    pass


class _Spawned(SpawnProcess):
    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:
        with _without_main():
            return SpawnProcess._Popen(process_obj)


class _SpawnedWithMain(_Named, SpawnProcess):
    pass


@contextmanager
def _without_main() -> Iterator[None]:
    """A process that is started in the block does not run the main file: `multiprocessing` finds none to name."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def context(*, runs_main: bool) -> ForkServerContext:
    """How to start such processes.

    Args:
        runs_main: Whether each runs the program's main file first.
    """
    found = ForkServerContext()
    found.Process = _ForkedWithMain if runs_main else _Forked  # type: ignore[misc]
    found.set_forkserver_preload(_PRELOADED)
    return found


def spawning(*, runs_main: bool) -> SpawnContext:
    """How to start processes in which nothing is loaded yet; see `context`."""
    found = SpawnContext()
    found.Process = _SpawnedWithMain if runs_main else _Spawned  # type: ignore[misc]
    return found


def check_main() -> None:
    """Do not begin here what starts processes, where this is one that still runs the main file of the program.

    One of ours ends, for `check_guarded` where it was started.

    Raises:
        UsageError: It is somebody else's.
    """
    process = multiprocessing.current_process()
    if getattr(process, "_inheriting", False):  # as multiprocessing itself asks
        if process.name.startswith(_NAME):
            os._exit(_UNGUARDED)
        raise _unguarded()


def check_guarded(process: BaseProcess | None) -> None:
    """Refuse a main file for which a process that ran it again has ended.

    Raises:
        UsageError: It begins a run whoever runs it.
    """
    if process is not None and process.exitcode == _UNGUARDED:
        raise _unguarded() from None  # however that was noticed


def _unguarded() -> UsageError:
    main = getattr(sys.modules["__main__"], "__file__", None) or sys.argv[0]
    return UsageError(
        f"The processes of a run get what a script registers by running the script again, so that it must not begin "
        f'a run whoever runs it, got {main}. Put the call under if __name__ == "__main__":, or move what is registered '
        f"to a file of its own and load that with load_plugin."
    )


def start() -> None:
    """Start the server, unless it runs, and do not wait for it."""
    context(runs_main=False)
    forkserver.ensure_running()
