"""The conformance suite for method authors: `adaptive-bench check`, or a pytest class to inherit.

from adaptive_bench.testing import MethodConformance

class TestMine(MethodConformance):
    spec = "mine"
"""

from adaptive_bench.testing.check import Check, Result
from adaptive_bench.testing.checks import CHECKS
from adaptive_bench.testing.conformance import MethodConformance
from adaptive_bench.testing.report import Report, check_specs

__all__ = ["CHECKS", "Check", "MethodConformance", "Report", "Result", "check_specs"]
