"""Parses method specs as users write them: `gateskip`, `gateskip[shape=scalar,kv=copy_below]`, `gateskip@paper`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from adaptive_bench.errors import UsageError
from adaptive_bench.validation import NAME, each_once, parts_of

Semantics = Literal["bench", "paper"]
SEMANTICS: tuple[Semantics, ...] = ("bench", "paper")
_FORM = re.compile(rf"(?P<name>{NAME.pattern})(\[(?P<params>[^\[\]]*)\])?(@(?P<semantics>\w+))?")


@dataclass(frozen=True)
class MethodSpec:
    """A method, the parameters that differ from its defaults (as text), and the semantics.

    Parameters are kept sorted, so that two specs with the same meaning are equal. Values stay text here; the method's
    own config model converts them and rejects unknown parameters.
    """

    name: str
    params: tuple[tuple[str, str], ...] = field(default=())  # a mapping of texts may be given
    semantics: Semantics = "bench"

    def __post_init__(self) -> None:
        if self.semantics not in SEMANTICS:
            raise UsageError(f"Semantics must be one of {', '.join(SEMANTICS)}, got {self.semantics!r}.")
        if not NAME.fullmatch(self.name):
            raise UsageError(
                f"The name in a method spec has letters, digits, underscores and hyphens, got {self.name!r}. Read a "
                f"spec from a text: MethodSpec.parse('gateskip[shape=scalar]')."
            )
        given = self.params.items() if isinstance(self.params, Mapping) else self.params
        pairs = [(str(name), str(value)) for name, value in given]
        names = [name for name, _ in pairs]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"A spec parameter is given once, got {twice!r} twice in {self.name!r}.")
        object.__setattr__(self, "params", tuple(sorted(pairs)))

    @classmethod
    def parse(cls, text: str) -> MethodSpec:
        """Read one spec.

        Raises:
            UsageError: The text does not have the form `name[key=value,...]@semantics`.
        """
        match = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise UsageError(f"A method spec has the form name[key=value,...]@semantics, got {text!r}.")
        params: list[tuple[str, str]] = []
        try:
            parts = parts_of(match["params"] or "")
        except ValueError as error:
            raise UsageError(f"The parameters of a method spec are wrong: {error}, got {text!r}.") from None
        for part in parts:
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not (key and equals and value):
                step = " A comma begins the next parameter: join several values by a plus, 1+3." if params else ""
                raise UsageError(f"A spec parameter has the form key=value, got {part!r} in {text!r}.{step}")
            params.append((key, value))
        return cls(match["name"], tuple(params), cast(Semantics, match["semantics"] or "bench"))

    @classmethod
    def of(cls, given: MethodSpec | str) -> MethodSpec:
        """Return a spec as it is, or parse a text.

        Raises:
            UsageError: `given` is neither a spec nor the text of one.
        """
        return given if isinstance(given, cls) else cls.parse(cast(str, given))

    def __str__(self) -> str:
        inner = ",".join(f"{key}={value}" for key, value in self.params)
        return self.name + (f"[{inner}]" if inner else "") + ("" if self.semantics == "bench" else f"@{self.semantics}")


def method_name(text: str) -> str:
    """Return the method's name at the beginning of a spec or of a label; the rest need not be valid."""
    return re.split(r"[\[@ ]", text, maxsplit=1)[0]


def parse_specs(text: str) -> list[MethodSpec]:
    """Read a comma-separated list of specs; commas inside brackets belong to the spec.

    Raises:
        UsageError: An item is no spec, is empty or occurs twice, or the list is empty.
    """
    try:
        specs = list(each_once(map(MethodSpec.parse, parts_of(text))))
    except ValueError as error:
        raise UsageError(f"A list of methods is wrong: {error}, got {text!r}.") from None
    if not specs:
        raise UsageError(f"At least one method is needed, got {text!r}.")
    return specs
