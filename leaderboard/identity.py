"""Who made an entry and where its parts are: what an author says of it, checked like all that comes from outside."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from adaptive_bench import registry
from adaptive_bench.errors import UsageError
from adaptive_bench.spec import method_name

from .plain import plain
from .rows import Rejected

_LINK = re.compile(r"https://[A-Za-z0-9.\-]+\.[A-Za-z]{2,}(/[A-Za-z0-9._~%/#?=&+,:@\-]*)?", re.ASCII)
_PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]*==[A-Za-z0-9][A-Za-z0-9.!+_\-]*", re.ASCII)
_LINKS = ("paper", "code", "plugin")
_LONGEST, _MOST_AUTHORS = 200, 50
KEYS = ("authors", "affiliation", *_LINKS, "package", "licence")
REQUIRED = ("authors", "licence")


def identity_of(values: object, *, whole: bool = False) -> dict[str, Any]:
    """What an author says, in the order of `KEYS`.

    Args:
        whole: Whether it is that of an entry, which has what is in `REQUIRED` and no empty values.

    authors: Names, a list.
    affiliation: Where they work.
    paper, code, plugin: `https` links: the paper, the code of the study, the source of the plugin.
    package: The package with the plugin and its version, `name==1.2`.
    licence: Of the entry, by its SPDX name, such as `CC-BY-4.0`.

    Raises:
        Rejected: A key is not known, is missing, or its value is of another kind.
    """
    if not isinstance(values, Mapping):
        raise Rejected(f"about: keys and values are wanted, got {type(values).__name__}")
    if unknown := [key for key in values if key not in KEYS]:
        raise Rejected(f"about: {', '.join(KEYS)} are known, got {plain(unknown[0], 40)!r}")
    if whole and (missing := [key for key in REQUIRED if key not in values]):
        raise Rejected(f"about: {' and '.join(missing)} missing, which every entry has; submit it with both")
    found = {key: values[key] for key in KEYS if key in values and (whole or values[key] not in (None, "", []))}
    for key, value in found.items():
        if not _is_good(key, value):
            raise Rejected(f"about: {key} {_WANTED.get(key, 'is a short text')}, got {plain(value, 80)!r}")
    return found


_WANTED = {
    "authors": f"is a list of at most {_MOST_AUTHORS} names, one at least, each once",
    **dict.fromkeys(_LINKS, "is a link that begins with https://"),
    "package": "is a package with its version, name==1.2",
    "licence": "is a licence by its SPDX name (spdx.org/licenses), CC-BY-4.0 say, or LicenseRef-NAME for another one",
}


def _is_good(key: str, value: object) -> bool:
    if key == "authors":
        if not isinstance(value, list) or not all(map(_is_text, value)):
            return False
        return 1 <= len(value) <= _MOST_AUTHORS and len({*value}) == len(value)
    if key == "licence":
        return _is_text(value) and _is_licence(str(value))
    form = _LINK if key in _LINKS else _PIN if key == "package" else None
    return _is_text(value) and (form is None or form.fullmatch(str(value)) is not None)


def _is_licence(text: str) -> bool:
    try:
        canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return False
    return True


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= _LONGEST and plain(value) == value


def asked_of(values: Mapping[str, Any], methods: Collection[str]) -> dict[str, Any]:
    """What `submit` asks an author for, checked.

    Args:
        methods: Specs of the run.

    Raises:
        UsageError: Something is missing or wrong; the message shows what to write.
    """
    try:
        found = identity_of(values)
    except Rejected as why:
        raise UsageError(f"An entry says who made it, but {why}. Correct --about, --authors or --licence.") from why
    missing = [key for key in REQUIRED if key not in found]
    own = [name for name in map(method_name, methods) if name in registry.names("methods")]
    foreign = sorted({name for name in own if registry.is_foreign("methods", name)})
    if foreign and not {"plugin", "package"} & found.keys():
        missing.append(f"plugin or package (where others get {', '.join(foreign)})")
    if missing:
        raise UsageError(
            f"An entry says who made it and how it may be used, but there is no {', no '.join(missing)}. Give --about "
            f"FILE, a YAML file with the keys {', '.join(KEYS)}; --authors 'A. Name; B. Name' and --licence CC-BY-4.0 "
            f"alone are enough for methods of this package."
        )
    return found
