"""The conformance suite for method authors: `adaptive-bench check`, or a pytest class to inherit.

from adaptive_bench.testing import MethodConformance

class TestMine(MethodConformance):
    spec = "mine"
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adaptive_bench.testing.check import Check, Result
    from adaptive_bench.testing.checks import CHECKS
    from adaptive_bench.testing.conformance import MethodConformance
    from adaptive_bench.testing.report import Report, check_specs

__all__ = ["CHECKS", "Check", "MethodConformance", "Report", "Result", "check_specs"]
# Loaded when first asked for: whoever needs one tiny backbone needs no tables.
_HOMES = {
    "CHECKS": "checks",
    "Check": "check",
    "MethodConformance": "conformance",
    "Report": "report",
    "Result": "check",
    "check_specs": "report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
