"""The forms of `entry.json` and `run.json` of an entry: every key is known, of its kind and within its range.

What an entry's records say beside them is in `held` and `claims`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from adaptive_bench import registry
from adaptive_bench.spec import method_name
from adaptive_bench.store.results import ENTRY, PACKED_RECORDS, RUN
from adaptive_bench.store.schema import SCHEMA as RUN_SCHEMA
from adaptive_bench.strict_yaml import read_mapping
from adaptive_bench.validation import MOST_SEEDS, rule_of

from .entry import SCHEMA
from .identity import identity_of
from .plain import plain
from .rows import Rejected, read_json

VERSIONS = ("adaptive-bench", "torch", "transformers", "lm-eval", "python", "device", "device_name", "threads")
_FILES = 20
_LONGEST_VERSION = 60
_PLUGIN = re.compile(r"\w[\w.\-]{0,99}\.py", re.ASCII)
_LONGEST_S = 10 * 366 * 86400.0
_Form = TypeVar("_Form", bound=BaseModel)


def version_of(value: object) -> str:
    """A version of adaptive-bench that an entry may have been written by.

    Raises:
        ValueError: It is none, or newer than this one.
    """
    here = version("adaptive-bench")
    try:
        if not isinstance(value, str) or len(value) > _LONGEST_VERSION:
            raise InvalidVersion
        found = Version(value)
    except InvalidVersion as error:
        raise ValueError("a version such as 0.1.0 is needed") from error
    if str(found) != value:
        raise ValueError(f"a version in its usual form, {found}, is needed")
    if found > Version(here):
        raise ValueError(f"a version of at most {here} is needed, which builds the board: update adaptive-bench")
    return value


def check_not_older(file: str, said: str, others: Iterable[str], where: str) -> None:
    """Refuse a version that wrote a file out of what later ones had made.

    Args:
        others: The versions of what it was made of; what is none is left to others.
        where: What has them, in words.
    """
    known = [Version(one) for one in others if is_version(one)]
    if known and Version(said) < max(known):
        raise Rejected(f"{file}: adaptive_bench {said}, but {where} {max(known)}")


def is_version(text: str) -> bool:
    """Whether a text is a version."""
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _printable(value: str) -> str:
    if plain(value, 10_000) != value or not value.strip():
        raise ValueError("a line of text without control characters is needed")
    return value


def _plugin(value: str) -> str:
    if not _PLUGIN.fullmatch(value):
        raise ValueError("the name of a Python file, without its folder, is needed")
    return value


def _environment(value: dict[str, str]) -> dict[str, str]:
    if not value or not value.keys() <= set(VERSIONS):
        raise ValueError(f"one or more of {', '.join(VERSIONS)} are needed")
    if "adaptive-bench" in value:
        version_of(value["adaptive-bench"])
    return value


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is needed")
    return value


_Version = Annotated[str, BeforeValidator(version_of)]
_Line = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
_Text = Annotated[str, Field(max_length=2000), AfterValidator(_printable)]
_Lines = Annotated[tuple[_Line, ...], Field(min_length=1, max_length=1000)]
_Environment = Annotated[dict[str, _Line], AfterValidator(_environment)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class EntryJson(_Strict):
    """`entry.json`, of any version."""

    about: dict[str, Any] | None = None
    files: Annotated[dict[str, _Digest], Field(min_length=1, max_length=_FILES)]
    form: Annotated[int, Field(alias="schema", ge=1, le=SCHEMA)]
    submitted: _Line | None = None
    adaptive_bench: _Version | None = None
    environments: Annotated[tuple[_Environment, ...], Field(strict=False, max_length=1000)] = ()
    plugins: Annotated[tuple[Annotated[str, AfterValidator(_plugin)], ...], Field(strict=False, max_length=50)] = ()


class RunJson(_Strict):
    """`run.json` as an entry has it."""

    state: Literal["done"]
    model: _Line
    form: Annotated[int, Field(alias="schema", ge=1, le=RUN_SCHEMA)] = RUN_SCHEMA
    methods: Annotated[_Lines | None, Field(strict=False)] = None
    tasks: Annotated[_Lines | None, Field(strict=False)] = None
    seeds: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] | None,
        Field(strict=False, min_length=1, max_length=MOST_SEEDS),
    ] = None
    match_on: _Line | None = None
    match_phase: _Line | None = None
    finished: _Line | None = None
    took_s: Annotated[float | None, Field(ge=0, le=_LONGEST_S), BeforeValidator(_no_truth)] = None
    warnings: Annotated[tuple[_Text, ...], Field(strict=False, max_length=10_000)] = ()
    failures: Annotated[tuple[()], Field(strict=False)] = ()
    records: Annotated[tuple[_Key, ...], Field(strict=False, max_length=100_000)] = ()


_NEEDED = {
    ENTRY: ("submitted", "adaptive_bench", "environments"),
    RUN: ("methods", "tasks", "seeds", "match_on", "match_phase", "records"),
}
# Of `run.json` in entries before version 3. Nobody reads them: what they said is told by the records, or by no one.
_NOT_READ = ("schema", "finished", "took_s", "failures")
_TOLD_BY_RECORDS = ("warnings",)


def check_forms(folder: Path) -> None:
    """Refuse an entry whose `entry.json` or `run.json` is of another form than `submit` writes.

    Raises:
        Rejected: The message names the file, the key, what it is and what it should be.
    """
    about = _read(EntryJson, folder / ENTRY)
    has_records = (folder / PACKED_RECORDS).is_file()
    try:
        identity_of(about.about or {}, whole=True)
    except Rejected as why:
        raise Rejected(f"{ENTRY}: {why}") from why
    if about.form > 1 or has_records:
        _check_there(about, ENTRY)
    for name in ("plugins", "environments"):
        _check_once(ENTRY, name, getattr(about, name))
    if (folder / RUN).is_file():
        run = _read(RunJson, folder / RUN)
        for name in ("methods", "tasks", "seeds", "records"):
            _check_once(RUN, name, getattr(run, name) or ())
        if has_records:
            _check_there(run, RUN)
        own = set(read_json(folder / RUN)) if about.form > 2 else set()
        if more := sorted(own & {*_NOT_READ, *(_TOLD_BY_RECORDS if has_records else ())}):
            raise Rejected(f"{RUN}: {more[0]} is no key of it: an entry has what its records do not tell")
    if about.adaptive_bench is not None:
        made = (one["adaptive-bench"] for one in about.environments if "adaptive-bench" in one)
        check_not_older(ENTRY, about.adaptive_bench, made, "its environments have")
    _check_plugins(folder, about)


def _check_plugins(folder: Path, about: EntryJson) -> None:
    """Refuse plugins of an entry whose methods and tasks are all of this package."""
    if not about.plugins or not (folder / "config.yaml").is_file():
        return
    config = read_mapping(folder / "config.yaml")
    named: dict[registry.Group, Iterable[object]] = {
        "methods": map(method_name, config.get("methods", ())),
        "tasks": config.get("tasks", ()),
    }
    if not any(_is_foreign(kind, str(name)) for kind, names in named.items() for name in names):
        raise Rejected(
            f"{ENTRY}: plugins names {about.plugins[0]}, but every method and task of config.yaml is of this package"
        )


def _is_foreign(kind: registry.Group, name: str) -> bool:
    names = registry.names(kind)
    base = name if name in names else name.partition(":")[0]
    return base not in names or registry.is_foreign(kind, base)


def _check_there(found: BaseModel, file: str) -> None:
    if missing := [key for key in _NEEDED[file] if getattr(found, key) in (None, ())]:
        raise Rejected(f"{file}: {missing[0]} is missing or empty, which `leaderboard submit` writes")


def _check_once(file: str, key: str, values: tuple[Any, ...]) -> None:
    if twice := next((one for place, one in enumerate(values) if one in values[:place]), None):
        raise Rejected(f"{file}: {key} names {plain(twice, 80)} twice")


def _read(form: type[_Form], file: Path) -> _Form:
    values = read_json(file)
    if not isinstance(values, Mapping):
        raise Rejected(f"{file.name} holds keys and values, got {type(values).__name__}")
    try:
        return form.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(plain(part, 40) for part in problem["loc"])
        if problem["type"] == "missing":
            raise Rejected(f"{file.name}: {place} is missing") from error
        if problem["type"] == "extra_forbidden":
            raise Rejected(f"{file.name}: {place} is no key of it") from error
        raise Rejected(f"{file.name}: {place}: {rule_of(problem)}, got {plain(problem['input'], 80)!r}") from error
