"""A function of ours that calls a plugin's code, in a process that ends with it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import torch

from adaptive_bench import fork_server, registry, stopping
from adaptive_bench.errors import AdaptiveBenchError, PluginFault
from adaptive_bench.faults import explained
from adaptive_bench.jobs.stdout_forwarder import StdoutForwarder
from adaptive_bench.jobs.worker import kill_group, lead_group
from adaptive_bench.progress import SilentReporter

T = TypeVar("T")
_LIMIT_S = 120.0
_LOOK_S = 0.2


class ProcessEnded(PluginFault):
    """A plugin's code ended its process, or never came to an end."""


def call_isolated(function: Callable[..., T], *arguments: Any, plugin: str, methods: list[str]) -> T:
    """What a function gives, called in a process of its own.

    Args:
        function: Of a module; it, its arguments and what it gives can be pickled.
        plugin: Whose code it calls, as an error names it.
        methods: Those whose plugin files are loaded first.

    Raises:
        ProcessEnded: The process ended before the function did, or the function takes too long.
        AdaptiveBenchError: What it raised, explained.
    """
    context = fork_server.context(runs_main=registry.needs_main())
    listener, speaker = context.Pipe(duplex=False)
    files = registry.plugin_files(methods)
    process = context.Process(
        target=_call,
        args=(speaker, fork_server.Surroundings.here(), files, torch.get_num_threads(), plugin, function, arguments),
        daemon=True,
    )
    process.start()
    speaker.close()
    try:
        end_s = time.monotonic() + _LIMIT_S
        while not listener.poll(_LOOK_S):
            stopping.check()
            if time.monotonic() > end_s:
                raise ProcessEnded(f"a small trial of {plugin} took more than {_LIMIT_S:.0f} seconds.")
        given, error = listener.recv()
    except EOFError:
        process.join()
        fork_server.check_guarded(process)
        raise ProcessEnded(
            f"a small trial of {plugin} ended its process ({_how(process.exitcode)}). Correct the plugin; "
            "`adaptive-bench check` tries all that a method does."
        ) from None
    finally:
        kill_group(process)
        process.join()
        listener.close()
    if error is not None:
        raise error
    return given


def _how(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def _call(
    speaker: Connection,
    surroundings: fork_server.Surroundings,
    files: list[Path],
    threads: int,
    plugin: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    surroundings.adopt()
    lead_group()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    signal.alarm(int(_LIMIT_S) + 1)  # if that is gone
    torch.set_num_threads(threads)
    sys.stdout = sys.stderr = StdoutForwarder(SilentReporter())
    error: AdaptiveBenchError | None = None
    given = None
    try:
        registry.load_plugins(files)
        given = function(*arguments)
    except Exception as caught:  # noqa: BLE001 - it is raised again, where the function was called for
        error = explained(caught, plugin)
    speaker.send((given, error))
    os._exit(0)
