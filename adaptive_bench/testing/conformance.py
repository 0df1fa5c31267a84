"""Offers the conformance suite as a pytest class to inherit.

    class TestMine(MethodConformance):
        spec = "mine"

It has one test per check and family. A check that does not apply is skipped with its reason. pytest is not imported.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any, ClassVar

from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.backbones import FAMILIES
from adaptive_bench.testing.check_definition import Check
from adaptive_bench.testing.checks import CHECKS
from adaptive_bench.testing.suite import Suite


class MethodConformance:
    """The class to inherit; set `spec` to the method spec to check, such as `mine` or `mine[every=3]@paper`."""

    spec: ClassVar[str]
    _suites: ClassVar[dict[str, Suite]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Per subclass, so that its tests share a suite: checks run once, also those that others need.
        cls._suites = {}


def _test(check: Check, family: str) -> Callable[[MethodConformance], None]:
    def test(self: MethodConformance) -> None:
        if family not in self._suites:
            self._suites[family] = Suite(MethodSpec.parse(self.spec), family)
        result = self._suites[family].result(check)
        if result.status == "not applicable":
            raise unittest.SkipTest(result.message)
        if result.status == "failed":
            raise AssertionError(result.message) from result.error

    test.__doc__ = check.asserts
    return test


# At the time of import, because pytest collects the methods that the class has then.
for _check in CHECKS:
    for _family in FAMILIES:
        setattr(MethodConformance, f"test_{_check.name}_{_family}", _test(_check, _family))
