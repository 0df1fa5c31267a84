"""Checks many specs and tells what came out."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import torch
from tabulate import tabulate

from adaptive_bench import registry
from adaptive_bench.errors import PluginFault
from adaptive_bench.method import config_of
from adaptive_bench.model.hardware import find_device
from adaptive_bench.model.text_decisions import duplicate_warnings
from adaptive_bench.probed import Matrix
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.spec import MethodSpec, parse_specs
from adaptive_bench.testing.backbones import FAMILIES
from adaptive_bench.testing.capabilities import capability_matrix
from adaptive_bench.testing.check import Result
from adaptive_bench.testing.checks import CHECKS
from adaptive_bench.testing.subject import Subject
from adaptive_bench.testing.suite import Shared, Suite
from adaptive_bench.testing.training import trained_behaviour

_SCHEMA = 1
_WIDTH = 80


@dataclass(frozen=True)
class Report:
    """Results of all checks on all specs and families.

    Attributes:
        warnings: Specs that do the same (see `duplicate_warnings`).
    """

    results: tuple[Result, ...]
    warnings: tuple[str, ...]
    elapsed_s: float

    @property
    def failures(self) -> list[Result]:
        """Results that failed."""
        return [result for result in self.results if result.status == "failed"]

    @property
    def matrix(self) -> Matrix:
        """What each spec can do."""
        return capability_matrix(self.results)

    def table(self) -> str:
        """One row per spec, one numbered column per check, over all families.

        `.` passed, `-` does not apply, `F` failed. Below it stands what the numbers
        mean.
        """
        statuses: dict[str, dict[str, set[str]]] = {}
        for result in self.results:
            statuses.setdefault(result.spec, {}).setdefault(result.check, set()).add(result.status)
        numbers = [str(number) for number, _ in enumerate(CHECKS, 1)]
        rows = [[spec, *(_mark(by_check[check.name]) for check in CHECKS)] for spec, by_check in statuses.items()]
        longest = _WIDTH - sum(2 + len(number) for number in numbers)
        # Numbers are a row like the others: as headings they would get a margin of their own, and 80 columns are few.
        table = tabulate(
            [["", *numbers], *rows],
            tablefmt="plain",
            colalign=("left", *("right" for _ in CHECKS)),
            disable_numparse=True,
            maxcolwidths=[longest, *(None for _ in CHECKS)],
        )
        legend = ", ".join(f"{number}\N{NO-BREAK SPACE}{check.name}" for number, check in enumerate(CHECKS, 1))
        return f"{table}\n\n{textwrap.fill(legend, _WIDTH)}".replace("\N{NO-BREAK SPACE}", " ")

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        results = [{key: value for key, value in asdict(result).items() if key != "error"} for result in self.results]
        return {
            "schema": _SCHEMA,
            "passed": not self.failures,
            "elapsed_s": round(self.elapsed_s, 1),
            "versions": {name: version(name) for name in ("adaptive-bench", "torch", "transformers")},
            "checks": {check.name: check.asserts for check in CHECKS},
            "results": results,
            "capabilities": self.matrix,
            "warnings": list(self.warnings),
        }


def _named(given: Any) -> list[MethodSpec]:
    """The specs that were asked for, all of methods that exist with parameters that they have."""
    parts = [given] if isinstance(given, str | MethodSpec) else given
    specs = [spec for part in parts for spec in (parse_specs(part) if isinstance(part, str) else [part])]
    for spec in specs:
        registry.check_name("methods", spec.name)
        with suppress(PluginFault):  # which the checks report
            config_of(spec)
    return specs


def _mark(statuses: set[str]) -> str:
    if "failed" in statuses:
        return "F"
    return "." if "passed" in statuses else "-"


def check_specs(
    specs: MethodSpec | str | Sequence[MethodSpec | str],
    families: Sequence[str] = FAMILIES,
    *,
    reporter: Reporter | None = None,
    debug: bool = False,
    device: torch.device | str = "cpu",
) -> Report:
    """Run every check on every spec and family, and compare what the specs do.

    Args:
        specs: One or more; a text may list several.
        debug: Let errors of a method's code through instead of reporting them as failures.
        device: Where everything runs.

    Raises:
        UsageError: Of the methods or families one does not exist, or no such device is here.
    """
    start_s = time.perf_counter()
    specs, device = _named(specs), find_device(str(device))
    for family in families:
        registry.check_name("families", family)
    results: list[Result] = []
    behaviours: dict[MethodSpec, str] = {}
    shared: Shared = {}
    with (reporter or SilentReporter()).task("check", len(specs) * len(families)) as task:
        for spec in specs:
            failed = False
            for family in families:
                family_results = Suite(spec, family, shared=shared, debug=debug, device=device).results()
                failed |= any(result.status == "failed" for result in family_results)
                results += family_results
                task.advance(1, spec=str(spec))
            if not failed:  # what is broken is not compared
                behaviours[spec] = trained_behaviour(Subject(spec, families[0], device))
    return Report(tuple(results), tuple(duplicate_warnings(behaviours)), time.perf_counter() - start_s)
