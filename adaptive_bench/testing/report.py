"""Checks many specs and reports the results: a table, and each method's capabilities as measured, never as declared."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from adaptive_bench import output, registry
from adaptive_bench.capabilities import CAPABILITIES, Matrix
from adaptive_bench.errors import PluginFault
from adaptive_bench.method import config_of
from adaptive_bench.model.hardware import find_device
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.spec import MethodSpec, parse_specs
from adaptive_bench.testing.backbones import FAMILIES
from adaptive_bench.testing.check_definition import Result
from adaptive_bench.testing.checks import CHECKS
from adaptive_bench.testing.suite import Shared, Suite


def capability_matrix(results: Iterable[Result]) -> Matrix:
    """Capabilities of each spec; if families disagree, every value names its family."""
    by_spec: dict[str, list[Result]] = {}
    for result in results:
        by_spec.setdefault(result.spec, []).append(result)
    matrix = {}
    for spec, found in by_spec.items():
        failing = {result.family for result in found if result.status == "failed"}
        sound = dict.fromkeys(result.family for result in found if result.family not in failing)
        matrix[spec] = {"families": ", ".join(sound) or "none"}
        # The first one, `families`, is the one just set; all others are facts that checks found.
        for key in (capability.key for capability in CAPABILITIES[1:]):
            facts = {result.family: result.facts[key] for result in found if key in result.facts}
            values = {name: fact if isinstance(fact, str) else "yes" if fact else "no" for name, fact in facts.items()}
            if len(set(values.values())) == 1:
                matrix[spec][key] = next(iter(values.values()))
            else:
                matrix[spec][key] = ", ".join(f"{value} ({family})" for family, value in values.items()) or "-"
    return matrix


def write_matrix(path: Path, matrix: Mapping[str, Mapping[str, str]], *, whole: bool = True) -> None:
    """Write a matrix as JSON; unless it is the `whole`, what the file knows of other specs stays, sorted by spec."""
    if not whole and path.is_file():
        matrix = dict(sorted((json.loads(path.read_text(encoding="utf-8")) | matrix).items()))
    output.write_text(path, json.dumps(matrix, indent=1, ensure_ascii=False) + "\n")


_SCHEMA = 1
_WIDTH = 80


@dataclass(frozen=True)
class Report:
    """Results of all checks on all specs and families, and the seconds that it took."""

    results: tuple[Result, ...]
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
        """One row per spec, one numbered column per check, over all families; a legend explains the numbers.

        `.` passed, `-` does not apply, `F` failed.
        """
        statuses: dict[str, dict[str, set[str]]] = {}
        for result in self.results:
            statuses.setdefault(result.spec, {}).setdefault(result.check, set()).add(result.status)
        # The numbers are an ordinary row, since headings would get margins for which 80 columns have no room.
        rows = [["", *(str(number) for number, _ in enumerate(CHECKS, 1))]]
        for spec, by_check in statuses.items():
            found = [by_check[check.name] for check in CHECKS]
            rows.append([spec, *("F" if "failed" in one else "." if "passed" in one else "-" for one in found)])
        table = tabulate(
            rows,
            tablefmt="plain",
            colalign=("left", *("right" for _ in CHECKS)),
            disable_numparse=True,
        )
        # With a space that does not break, so that a number stays on the line of its check.
        legend = ", ".join(f"{number}\N{NO-BREAK SPACE}{check.name}" for number, check in enumerate(CHECKS, 1))
        filled = textwrap.fill(legend, _WIDTH, break_on_hyphens=False)
        return f"{table}\n\n{filled}".replace("\N{NO-BREAK SPACE}", " ")

    def to_json(self) -> dict[str, Any]:
        """The whole report as plain values."""
        results = [{key: value for key, value in asdict(result).items() if key != "error"} for result in self.results]
        return {
            "schema": _SCHEMA,
            "passed": not self.failures,
            "elapsed_s": round(self.elapsed_s, 1),
            "versions": {name: version(name) for name in ("adaptive-bench", "torch", "transformers")},
            "checks": {check.name: check.asserts for check in CHECKS},
            "results": results,
            "capabilities": self.matrix,
        }


def _named(given: Any) -> list[MethodSpec]:
    """The given specs, after checking that their methods and parameters exist."""
    parts = [given] if isinstance(given, str | MethodSpec) else given
    specs = [spec for part in parts for spec in (parse_specs(part) if isinstance(part, str) else [part])]
    for spec in specs:
        registry.check_name("methods", spec.name)
        with suppress(PluginFault):  # the checks report it
            config_of(spec)
    return specs


def check_specs(
    specs: MethodSpec | str | Sequence[MethodSpec | str],
    families: Sequence[str] = FAMILIES,
    *,
    reporter: Reporter | None = None,
    debug: bool = False,
    device: torch.device | str = "cpu",
) -> Report:
    """Run every check on every spec and family.

    Args:
        specs: One or more specs; a text may list several.
        debug: Raise errors of a method's code instead of reporting them as failures.

    Raises:
        UsageError: A method or family does not exist, or this machine does not have the device.
    """
    start_s = time.perf_counter()
    specs, device = _named(specs), find_device(str(device))
    for family in families:
        registry.check_name("families", family)
    results: list[Result] = []
    shared: Shared = {}
    with (reporter or SilentReporter()).task("check", len(specs) * len(families)) as task:
        for spec in specs:
            for family in families:
                results += Suite(spec, family, shared=shared, debug=debug, device=device).results()
                task.advance(1, spec=str(spec))
    return Report(tuple(results), time.perf_counter() - start_s)
