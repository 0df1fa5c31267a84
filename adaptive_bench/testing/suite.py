"""Runs the checks on a spec and family, each once, and lists the specs of a method that are checked.

The specs are the default in both semantics and a variant for each alternative value of a parameter. Alternatives are
read off the method's `Config`: every other value of a `Literal`, the opposite of a `bool`, and the `examples` of a
field of another type (`Field(1, examples=[2])`). Parameters vary one at a time, in `bench` semantics, unless a value
needs another (`Config.companions`); values known to be unsound (`Config.unsound`) are left out.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import replace
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import torch

from adaptive_bench.errors import plugin_line
from adaptive_bench.method import method_class
from adaptive_bench.spec import SEMANTICS, MethodSpec
from adaptive_bench.testing.check_definition import Check, Facts, NotApplicable, Result, Status, Violation
from adaptive_bench.testing.checks import CHECKS
from adaptive_bench.testing.subject import Subject

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
