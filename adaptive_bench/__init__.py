"""adaptive-bench: which adaptive-compute method keeps the most quality at the same saved compute, for real?

The names that a notebook needs can be imported from here: `from adaptive_bench import AdaptiveModel, run, load_config`.
Each is loaded when it is first used, so that the command line starts without torch.
"""

import os
import signal
import sys
from importlib import import_module
from typing import Any

_called = sys.argv[0] if sys.argv else ""  # an embedded Python may have none
_is_program = _called.endswith("adaptive-bench") or (_called == "-m" and "adaptive_bench" in sys.orig_argv)
if _is_program and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until the command line handles Ctrl-C itself, the system's default is better than a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

__version__ = "0.1.0"

if "ADAPTIVE_BENCH_QUIET" in os.environ:  # this process was started by the command line
    from adaptive_bench.progress import quiet

    quiet()

_HOMES = {
    "AdaptiveCallback": "adaptive_bench.model.trainer_callback",
    "AdaptiveModel": "adaptive_bench.model",
    "MethodSpec": "adaptive_bench.spec",
    "RunConfig": "adaptive_bench.config",
    "check_specs": "adaptive_bench.testing.suite",
    "find_backbone": "adaptive_bench.runs.backbone_source",
    "load_config": "adaptive_bench.config",
    "load_plugin": "adaptive_bench.registry",
    "load_results": "adaptive_bench.store.runs",
    "plan": "adaptive_bench.runs",
    "register": "adaptive_bench.registry",
    "run": "adaptive_bench.runs",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
