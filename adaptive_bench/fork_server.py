"""A process with the libraries loaded that has never seen a plugin; others are forked from it within milliseconds.

It is Python's own fork server (`multiprocessing`), started anew and not forked: whatever plugins did to this process,
it knows nothing of it.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

# By name: what they import takes seconds, which the server spends while this process goes on.
_PRELOADED = ["adaptive_bench.runs", "adaptive_bench.runs.workers.pool", "adaptive_bench.methods.dense"]
_PRELOADED += ["lm_eval.tasks", "safetensors.torch", "transformers.integrations.sdpa_attention"]
_PRELOADED += [
    f"transformers.models.{name}.modeling_{name}" for name in ("llama", "mistral", "qwen2", "qwen3", "gemma2")
]


def context() -> ForkServerContext:
    """How to start such processes."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(_PRELOADED)
    return found


def start() -> None:
    """Start the server, unless it runs. It inherits the environment: call this before plugins are loaded."""
    context()
    forkserver.ensure_running()
