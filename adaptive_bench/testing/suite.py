"""Runs the checks on specs and families, and reports what they found: a table, and each method's capabilities.

The specs of a method are its default in both semantics and a variant for each alternative value of a parameter. They
are read off the method's `Config`: every other value of a `Literal`, the opposite of a `bool`, and the `examples` of a
field of another type (`Field(1, examples=[2])`). Parameters vary one at a time, in `bench` semantics, unless a value
needs another (`Config.companions`); values known to be unsound (`Config.unsound`) are left out.
"""

from __future__ import annotations

import json
import textwrap
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import torch

from adaptive_bench import output, registry
from adaptive_bench.capabilities import CAPABILITIES, Matrix
from adaptive_bench.errors import PluginFault, plugin_line
from adaptive_bench.hardware import find_device
from adaptive_bench.method import config_of, method_class
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.spec import SEMANTICS, MethodSpec, parse_specs
from adaptive_bench.testing.checking import Check, Facts, NotApplicable, Result, Status, Violation
from adaptive_bench.testing.checks import CHECKS
from adaptive_bench.testing.subject import FAMILIES, Subject

Shared = dict[tuple[str, str, str], Result]  # check, training spec, family -> result


class Suite:
    """All checks on one spec and one family; each runs when its result is first needed.

    Args:
        shared: Results of training checks, shared with the suites of specs that are trained alike.
        debug: Raise errors of a method's code instead of reporting them as failures.
    """

    def __init__(
        self,
        spec: MethodSpec,
        family: str,
        *,
        shared: Shared | None = None,
        debug: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        self.subject = Subject(spec, family, device)
        self.shared: Shared = {} if shared is None else shared
        self.debug = debug
        self._results: dict[str, Result] = {}
        self._blocked: set[str] = set()  # checks that failed, or did not run because one they need failed

    def results(self, checks: Sequence[Check] = CHECKS) -> list[Result]:
        """Results in the order of the checks."""
        return [self.result(check) for check in checks]

    def result(self, check: Check) -> Result:
        """The result of one check; the checks that it needs run first."""
        if check.name not in self._results:
            # Through `CHECKS`, because a check names those that it needs; results are kept, so none runs twice.
            for needed in CHECKS:
                if needed.name in check.needs:
                    self.result(needed)
            missing = [name for name in check.needs if name in self._blocked]
            key = (check.name, str(self.subject.training_spec), self.subject.family)
            if missing:
                result = self._result(check, "not applicable", f"needs {missing[0]}")
            elif check.of_training:
                if key not in self.shared:
                    self.shared[key] = self._run(check)
                # The shared result may be of another spec that is trained alike.
                result = replace(self.shared[key], spec=str(self.subject.spec))
            else:
                result = self._run(check)
            if missing or result.status == "failed":  # what needs this one does not run either
                self._blocked.add(check.name)
            self._results[check.name] = result
        return self._results[check.name]

    def _run(self, check: Check) -> Result:
        try:
            # `Subject.text` draws other texts at the second try; a rule that is broken is broken there too.
            for self.subject.texts in range(2 if check.rounding else 1):
                try:
                    return self._result(check, "passed", "", check.probe(self.subject))
                except Violation as error:
                    violation = error  # `error` is unset at the end of its handler
            return self._result(check, "failed", str(violation))
        except NotApplicable as reason:
            return self._result(check, "not applicable", str(reason), reason.facts)
        except Exception as error:
            if self.debug:
                raise
            last = traceback.extract_tb(error.__traceback__)[-1]
            # A plugin's line says more than a library's.
            where = plugin_line(error) or f"{last.filename}:{last.lineno}"
            message = f"raised {type(error).__name__} at {where}: {error}"
            return replace(self._result(check, "failed", message), error=error)

    def _result(self, check: Check, status: Status, message: str, facts: Facts | None = None) -> Result:
        return Result(check.name, str(self.subject.spec), self.subject.family, status, message, facts or {})


def method_specs(name: str) -> list[MethodSpec]:
    """The specs of one method: its default in both semantics, then its variants."""
    return [*(MethodSpec(name, semantics=semantics) for semantics in SEMANTICS), *variants(name)]


def variants(name: str) -> list[MethodSpec]:
    """One spec per alternative value of each parameter."""
    config = method_class(MethodSpec(name)).Config
    settings = [
        f"{parameter}={_text(value)}"
        for parameter, field in config.model_fields.items()
        for value in dict.fromkeys([*_enumerated(field.annotation), *(field.examples or [])])
        if value != field.default and f"{parameter}={_text(value)}" not in config.unsound
    ]
    together = [",".join(filter(None, (setting, config.companions.get(setting)))) for setting in settings]
    return [MethodSpec.parse(f"{name}[{setting}]") for setting in together]


def _enumerated(annotation: Any) -> list[Any]:
    """All values of a type that has few, without `None`, which stands for no choice; empty for other types."""
    if annotation is bool:
        return [False, True]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return [value for part in get_args(annotation) if part is not NoneType for value in _enumerated(part)]
    return []


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
        from tabulate import tabulate  # absent where only PyTorch and transformers are

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
