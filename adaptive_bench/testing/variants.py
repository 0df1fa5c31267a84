"""Which specs of a method are checked: both semantics, and every alternative of every parameter with few values.

Alternatives are read off the method's `Config`: each other value of a `Literal`, the opposite of a `bool`, and the
`examples` a field of any other type gives (`Field(1, examples=[2])`). Parameters vary one at a time, in `bench`
semantics, unless one needs another (`Config.companions`); values known to be unsound (`Config.unsound`) are left out.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from adaptive_bench.method import method_class
from adaptive_bench.spec import SEMANTICS, MethodSpec


def method_specs(name: str) -> list[MethodSpec]:
    """The specs of one method: its default in both semantics, then its variants."""
    return [*(MethodSpec(name, semantics=semantics) for semantics in SEMANTICS), *variants(name)]


def variants(name: str) -> list[MethodSpec]:
    """One spec per alternative value of each parameter.

    Raises:
        UsageError: No method has that name.
    """
    config = method_class(MethodSpec(name)).Config
    settings = [
        f"{parameter}={_text(value)}"
        for parameter, field in config.model_fields.items()
        for value in _alternatives(field)
        if f"{parameter}={_text(value)}" not in config.unsound
    ]
    together = [",".join(filter(None, (setting, config.companions.get(setting)))) for setting in settings]
    return [MethodSpec.parse(f"{name}[{setting}]") for setting in together]


def _alternatives(field: FieldInfo) -> list[Any]:
    values = [*_enumerated(field.annotation), *(field.examples or [])]
    return [value for value in dict.fromkeys(values) if value != field.default]


def _enumerated(annotation: Any) -> list[Any]:
    """Every value of a type that has few; none for other types. `None` is the absence of a choice."""
    if annotation is bool:
        return [False, True]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return [value for part in get_args(annotation) if part is not NoneType for value in _enumerated(part)]
    return []


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
