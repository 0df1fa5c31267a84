"""Checks that methods conform, for their authors: `adaptive-bench check`, or a pytest class to inherit.

from adaptive_bench.testing import MethodConformance

class TestMine(MethodConformance):
    spec = "mine"
"""

from typing import TYPE_CHECKING

from adaptive_bench.startup import loader

if TYPE_CHECKING:
    from adaptive_bench.testing.check_definition import Check, Result
    from adaptive_bench.testing.checks import CHECKS
    from adaptive_bench.testing.conformance import MethodConformance
    from adaptive_bench.testing.report import Report, check_specs

__all__ = ["CHECKS", "Check", "MethodConformance", "Report", "Result", "check_specs"]
# Modules are loaded on first use, so that importing a tiny backbone does not load everything else.
_HOMES = {
    "CHECKS": "adaptive_bench.testing.checks",
    "Check": "adaptive_bench.testing.check_definition",
    "MethodConformance": "adaptive_bench.testing.conformance",
    "Report": "adaptive_bench.testing.report",
    "Result": "adaptive_bench.testing.check_definition",
    "check_specs": "adaptive_bench.testing.report",
}
__getattr__ = loader(__name__, _HOMES)
