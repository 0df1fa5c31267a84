"""Makes command-line options of config keys: one for each key that is used often, and `--set` for all."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from adaptive_bench.cli.options import names_of
from adaptive_bench.config import DEFAULT_PRESET, keys, load_config, merged
from adaptive_bench.errors import UsageError, one_line
from adaptive_bench.validation import parse_yaml

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

PANELS = ("What is compared", "How", "Where")  # headings of the help, in order
_SET = "set_keys"  # parameter behind `--set`
# Shell completions, by key.
_COMPLETED = {
    "methods": names_of("methods"),
    "tasks": names_of("tasks"),
    "train_on": names_of("tasks"),
    "model": names_of("models"),
}
# The first `=` outside the brackets of a method spec: `train.method_learning_rates.gateskip[shape=scalar]=0.05`.
_ASSIGNMENT = re.compile(r"((?:[^=\[\]]|\[[^\]]*\])+)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Overrides:
    """Config values given on the command line.

    Attributes:
        values: The values, nested like a config file.
        flags: The flag that the user wrote for each dotted path: `--limit`, or `--set train.batch_size`.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)

    def with_value(self, path: Sequence[str], value: Any, flag: str) -> Overrides:
        """The same values and one more."""
        flags = dict(self.flags)
        for leaf in _leaves(".".join(path), value):
            for other, by in self.flags.items():
                # A value for `train` and one for `train.steps` exclude each other. The dots keep `train.step` out.
                if f"{leaf}.".startswith(f"{other}.") or f"{other}.".startswith(f"{leaf}."):
                    raise UsageError(f"A key of the config is given once, got it by {by} and {flag}. Leave one out.")
            flags[leaf] = flag
        for part in reversed(path):  # nests the value, from the innermost key outwards
            value = {part: value}
        return replace(self, values=merged(self.values, value), flags=flags)

    def with_assignment(self, text: str) -> Overrides:
        """The same values and one from `--set KEY=VALUE`, a dotted path and a value in YAML."""
        match = _ASSIGNMENT.fullmatch(text)
        if match is None or not match[2].strip():
            raise UsageError(
                f"--set takes KEY=VALUE such as train.batch_size=8, null for none, got {one_line(text, 100)!r}."
            )
        key = match[1].strip()
        flag = f"--set {key}"
        return self.with_value(_path(key), parse_yaml(match[2], f"The value of {flag}"), flag)


def takes_config(*only: str, preset: str = DEFAULT_PRESET) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of config keys; its function takes what they were given as `overrides`.

    Args:
        only: Dotted paths that get an option; by default all that have one with `run`.
        preset: The preset whose values the help shows as defaults.
    """
    fields = {path: field for path, field in keys().items() if "panel" in _extra(field)}
    # A stable sort: within a panel the order is that of `RunConfig`.
    paths = sorted(only or fields, key=lambda path: PANELS.index(_extra(fields[path])["panel"]))
    usual = load_config(preset, reads_data=False).model_dump(mode="json")
    options = [_parameter(path, fields[path], usual, with_panel=not only) for path in paths]
    every = typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any key, `train.batch_size=8` for example (`list keys`); may be repeated.",
        rich_help_panel=None if only else "How",
    )
    options.append(_keyword(_SET, Annotated[list[str] | None, every]))

    def with_options(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(**given: Any) -> None:
            overrides = Overrides()
            for path, option in zip(paths, options, strict=False):  # `--set`, the last one, has no path
                if (value := given.pop(option.name)) is not None:  # else not given
                    overrides = overrides.with_value(path.split("."), value, _flag(path, fields[path]))
            for text in given.pop(_SET) or ():
                overrides = overrides.with_assignment(text)
            function(overrides=overrides, **given)

        own = dict(inspect.signature(function, eval_str=True).parameters)
        del own["overrides"]
        others = [_keyword(name, one.annotation, one.default) for name, one in own.items()]
        place = list(own).index("config")  # which stands after the options of the config
        # Typer reads the options from the signature. Functions may have one, although their type lacks it.
        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*others[:place], *options, *others[place:]]
        )
        return command

    return with_options


def _extra(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _flag(path: str, field: FieldInfo) -> str:
    return _extra(field).get("flag") or "--" + path.replace("_", "-")


def _keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _parameter(path: str, field: FieldInfo, usual: Any, *, with_panel: bool) -> inspect.Parameter:
    """The parameter of a function from which Typer makes the option of a key."""
    extra, parts = _extra(field), list(_parts(field.annotation))
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    # Lists and words are texts whose grammar `RunConfig` knows.
    is_list = any(get_origin(part) is tuple for part in parts)
    kind: Any = str if is_list else next((part for part in parts if part in (bool, int, float, Path)), str)
    flag = _flag(path, field)
    off = flag.replace("--", "--no-", 1)
    for part in path.split("."):
        usual = usual[part]
    # Typer shows a text as it is. The option's own default is `None`, which means "not given".
    shown = ",".join(map(str, usual)) if isinstance(usual, list) else "" if usual is None else str(usual)
    option = typer.Option(
        f"{flag}/{off}" if kind is bool else flag,
        metavar=extra.get("metavar") or "|".join(words) or None,
        help=str(field.description).partition("\n")[0],
        show_default=shown or True,
        rich_help_panel=extra["panel"] if with_panel else None,
        autocompletion=_COMPLETED.get(path),
    )
    return _keyword(path.replace(".", "_"), Annotated[kind | None, option])


def _parts(annotation: Any) -> Iterator[Any]:
    """A type and, recursively, the types it is made of."""
    yield annotation
    if get_origin(annotation) is not Literal:  # whose arguments are values, not types
        for part in get_args(annotation):
            yield from _parts(part)


def _leaves(path: str, value: Any) -> Iterator[str]:
    """Paths of the values of a mapping, else the path itself."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}", inner)
    else:
        yield path


def _path(key: str) -> list[str]:
    """A dotted path in parts. A name below a table of names, such as a method spec, is one part even if it has dots."""
    for table, about in keys().items():
        if get_origin(about.annotation) is dict and key.startswith(f"{table}."):
            return [*table.split("."), key.removeprefix(f"{table}.")]
    return key.split(".")
