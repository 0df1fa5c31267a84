"""adaptive-bench: which adaptive-compute method keeps the most quality at the same saved compute, for real?

The names of a notebook stand here: `from adaptive_bench import AdaptiveModel, run, load_config`. Each is loaded when it
is first asked for, so that the command line starts without torch.
"""

from adaptive_bench.lazy import loader

__version__ = "0.1.0"

_HOMES = {
    "AdaptiveCallback": "adaptive_bench.model.trainer_callback",
    "AdaptiveModel": "adaptive_bench.model",
    "MethodSpec": "adaptive_bench.spec",
    "RunConfig": "adaptive_bench.config",
    "check_specs": "adaptive_bench.testing",
    "find_backbone": "adaptive_bench.runs.planning.backbones",
    "load_config": "adaptive_bench.config",
    "load_plugin": "adaptive_bench.registry",
    "load_results": "adaptive_bench.store.results",
    "plan": "adaptive_bench.runs",
    "register": "adaptive_bench.registry",
    "run": "adaptive_bench.runs",
}
__all__ = [*_HOMES, "__version__"]
__getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
