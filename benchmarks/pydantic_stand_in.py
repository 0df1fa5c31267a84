"""Replaces the part of pydantic that methods' configs need, for a machine with PyTorch and transformers alone.

It supports fields with defaults, simple types (`Literal`, `bool`, `int`, `float`, `str`, or one of them or `None`) and
bounds; values may be texts, as in a method spec. Of validators it runs only model validators in mode `after`; a class
with others can be defined but not instantiated.
`bare.prepare` uses this module only if pydantic is not installed.
"""

from __future__ import annotations

import inspect
import operator
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass as dataclass  # in place of pydantic's own
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

_BOUNDS = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt}
_WORDS = {"true": True, "false": False}
_MISSING = object()


class ValidationError(ValueError):
    """A value does not fit its field, or a model breaks a rule."""

    def __init__(self, name: str, message: str, value: object) -> None:
        super().__init__(f"{name or 'model'}: {message}")
        self._error = {"loc": (name,) if name else (), "msg": message, "input": value, "type": "value_error"}

    def errors(self, **_: object) -> list[dict[str, Any]]:
        """A list with the one error, in pydantic's form."""
        return [self._error]


class FieldInfo:
    """Default, bounds and other properties of a field."""

    def __init__(self, default: Any = _MISSING, **about: Any) -> None:
        self.default, self.about, self.annotation = default, about, None
        self.examples, self.description = about.get("examples"), about.get("description")
        self.alias, self.validation_alias = about.get("alias"), about.get("validation_alias")

    def get_default(self, **_: object) -> Any:
        """The default."""
        return self.default

    def is_required(self) -> bool:
        """Whether the field has no default."""
        return self.default is _MISSING

    def read(self, name: str, value: Any) -> Any:
        """The value, converted to the field's type.

        Raises:
            ValidationError: The value has another type, or is out of bounds.
        """
        found = _read(self.annotation, value)
        if found is _MISSING:
            raise ValidationError(name, f"Input should be {self.annotation}", value)
        for bound, holds in _BOUNDS.items():
            if found is not None and bound in self.about and not holds(found, self.about[bound]):
                raise ValidationError(name, f"Input should be {bound} {self.about[bound]}", value)
        return found


def Field(default: Any = _MISSING, **about: Any) -> Any:
    """See pydantic."""
    return FieldInfo(default, **about)


def ConfigDict(**settings: Any) -> dict[str, Any]:
    """See pydantic."""
    return settings


def field_validator(*fields: str, mode: str = "after") -> Callable[[Any], Any]:
    """See pydantic."""

    def mark(function: Any) -> Any:
        _plain(function).needs_pydantic = True  # type: ignore[attr-defined]
        return function

    return mark


def model_validator(*, mode: str) -> Callable[[Any], Any]:
    """See pydantic."""

    def mark(function: Any) -> Any:
        setattr(_plain(function), "runs_after" if mode == "after" else "needs_pydantic", True)
        return function

    return mark


class AfterValidator:
    """See pydantic; needed in annotations of classes that are never instantiated here."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function


class BeforeValidator(AfterValidator):
    """See pydantic."""


class BaseModel:
    """A model with annotated fields that is frozen and refuses unknown names, as methods' configs are set up."""

    model_fields: ClassVar[dict[str, FieldInfo]] = {}
    _beyond: ClassVar[bool] = False
    _after: ClassVar[tuple[Callable[[Any], Any], ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {name: vars(cls).get(name, _MISSING) for name in inspect.get_annotations(cls)}
        infos = {name: one if isinstance(one, FieldInfo) else FieldInfo(one) for name, one in own.items()}
        cls.model_fields = cls.model_fields | {name: info for name, info in infos.items() if _is_field(cls, name)}
        cls._beyond = cls._beyond or any(hasattr(_plain(one), "needs_pydantic") for one in vars(cls).values())
        cls._after += tuple(one for one in vars(cls).values() if hasattr(one, "runs_after"))

    def __init__(self, **values: Any) -> None:
        if self._beyond:
            raise RuntimeError(f"{type(self).__name__} has validators of its own. Install pydantic.")
        hints = get_type_hints(type(self))
        if unknown := values.keys() - self.model_fields.keys():
            raise ValidationError(min(unknown), "Extra inputs are not permitted", values[min(unknown)])
        for name, info in self.model_fields.items():
            info.annotation = hints[name]
            if name not in values and info.is_required():
                raise ValidationError(name, "Field required", None)
            vars(self)[name] = info.read(name, values[name]) if name in values else info.default
        for holds in self._after:
            try:
                holds(self)
            except ValueError as error:
                raise ValidationError("", str(error), values) from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).items()))

    @classmethod
    def model_validate(cls, values: Mapping[str, Any]) -> Any:
        """A model with these values."""
        return cls(**values)

    def model_dump(self, **_: object) -> dict[str, Any]:
        """The fields as plain values."""
        return dict(vars(self))


def _is_field(cls: type, name: str) -> bool:
    annotation = inspect.get_annotations(cls)[name]
    return not str(annotation).startswith(("ClassVar", "typing.ClassVar")) and not name.startswith(("_", "model_"))


def _plain(value: object) -> object:
    return getattr(value, "__func__", value)


def _read(kind: Any, value: Any) -> Any:
    """The value, converted to the type `kind`; `_MISSING` if it does not fit."""
    if get_origin(kind) in (Union, types.UnionType):
        kinds = [part for part in get_args(kind) if part is not type(None)]
        if value is None:
            return None
        return next((found for part in kinds if (found := _read(part, value)) is not _MISSING), _MISSING)
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else _MISSING
    if kind is bool:
        return _WORDS.get(str(value).lower(), _MISSING)
    if kind in (int, float) and not isinstance(value, bool):
        try:
            found = kind(value)
        except (TypeError, ValueError):
            return _MISSING
        return found if found == float(value) else _MISSING  # refuses fractions for an int, and NaN
    return value if kind is str and isinstance(value, str) else _MISSING
