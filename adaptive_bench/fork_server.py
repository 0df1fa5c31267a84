"""A process with the libraries loaded that has never seen a plugin; others are forked from it within milliseconds.

It is Python's own fork server (`multiprocessing`), started anew and not forked: whatever plugins did to this process,
it knows nothing of it.
"""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

# By name: what they import takes seconds, which the server spends while this process goes on.
_PRELOADED = ["adaptive_bench.preloaded_first"]
_PRELOADED += ["adaptive_bench.runs", "adaptive_bench.jobs.pool", "adaptive_bench.methods.dense"]
_PRELOADED += ["lm_eval.tasks", "safetensors.torch", "transformers.integrations.sdpa_attention"]
_PRELOADED += [
    f"transformers.models.{name}.modeling_{name}" for name in ("llama", "mistral", "qwen2", "qwen3", "gemma2")
]
_PRELOADED += ["adaptive_bench.preloaded"]


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


def context() -> ForkServerContext:
    """How to start such processes."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(_PRELOADED)
    return found


def start() -> None:
    """Start the server, unless it runs, and do not wait for it."""
    context()
    forkserver.ensure_running()
