"""What `adaptive-bench check --json` prints."""

from __future__ import annotations

from typing_extensions import TypedDict

from adaptive_bench.testing.check import Status


class CheckResult(TypedDict):
    """One check of one spec on one family.

    Attributes:
        message: What is wrong, or why the check does not apply; empty where it passed.
        facts: What was found out about the method on the way.
    """

    check: str
    spec: str
    family: str
    status: Status
    message: str
    facts: dict[str, bool | str]


Versions = TypedDict("Versions", {"adaptive-bench": str, "torch": str, "transformers": str})


class Conformance(TypedDict):
    """All results.

    Attributes:
        schema: Version of this form.
        checks: By name what each asserts.
        capabilities: By spec what it can do, by name of the capability.
        warnings: Specs that do the same.
    """

    schema: int
    passed: bool
    elapsed_s: float
    versions: Versions
    checks: dict[str, str]
    results: list[CheckResult]
    capabilities: dict[str, dict[str, str]]
    warnings: list[str]
