"""Makes command-line options for the keys of a config: one for each key that is used often, and `--set` for all keys.

The options are made from the fields of `RunConfig` only when a command that has them is parsed, because importing
pydantic takes longer than the help of any other command may.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_origin

import typer

from adaptive_bench.cli.options import Command, keyword, names_of, options_of
from adaptive_bench.errors import UsageError, one_line
from adaptive_bench.strict_yaml import parse

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from adaptive_bench.config import RunConfig

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
        from adaptive_bench.config import merged

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
        return self.with_value(_path(key), parse(match[2], f"The value of {flag}"), flag)

    def load(self, preset_or_path: str, *, reads_data: bool = True) -> RunConfig:
        """The config with these values over those of a preset or a file; see `load_config`."""
        from adaptive_bench.config import load_config

        return load_config(preset_or_path, self.values, flags=self.flags, reads_data=reads_data)


class ConfigCommand(Command):
    """A command whose function finds the config values that were given in `ctx.obj`, as `Overrides`.

    Attributes:
        keys: Dotted paths that have an option; if empty, all that have one with `run`.
        preset: The preset whose values the help shows as defaults.
    """

    keys: ClassVar[tuple[str, ...]] = ()
    preset: ClassVar[str] = "nano"

    @cached_property
    def _fields(self) -> dict[str, FieldInfo]:
        """Fields by dotted path, in the order of the help."""
        from adaptive_bench.config import keys

        fields = {path: field for path, field in keys().items() if path in self.keys or not self.keys}
        panels = {path: _extra(field)["panel"] for path, field in fields.items() if "panel" in _extra(field)}
        # A stable sort: within a panel the order is that of `RunConfig`.
        return {path: fields[path] for path in sorted(panels, key=lambda path: PANELS.index(panels[path]))}

    @cached_property
    def _options(self) -> dict[str, Any]:
        """Options of click by dotted path."""
        with_panels = not self.keys
        parameters = [_parameter(path, field, with_panels) for path, field in self._fields.items()]
        every = typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any key, `train.batch_size=8` for example (`list keys`); may be repeated.",
            rich_help_panel="How" if with_panels else None,
        )
        parameters.append(keyword(_SET, Annotated[list[str] | None, every]))
        # Typer keeps the order of the parameters.
        return dict(zip((*self._fields, _SET), options_of(parameters), strict=True))

    def get_params(self, ctx: Any) -> list[Any]:
        """See click; options of the config stand before `--config`."""
        own = super().get_params(ctx)
        place = next(number for number, param in enumerate(own) if param.name == "config")
        return [*own[:place], *self._options.values(), *own[place:]]

    def invoke(self, ctx: Any) -> Any:
        """See click."""
        # Taken out of the parameters, because the command's own function does not have them.
        given = {key: ctx.params.pop(option.name) for key, option in self._options.items()}
        assignments, overrides = given.pop(_SET) or (), Overrides()
        for path, value in given.items():
            if value is not None:  # else not given: no option has a default of its own
                overrides = overrides.with_value(path.split("."), value, self._options[path].opts[0])
        for text in assignments:
            overrides = overrides.with_assignment(text)
        ctx.obj = overrides
        return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See click; the values of the default preset are the defaults of the options that override them."""
        from adaptive_bench.config import load_config

        values = load_config(self.preset).model_dump(mode="json")
        for path in self._fields:
            value: Any = values
            for part in path.split("."):
                value = value[part]
            if value not in (None, []):
                text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
                # Typer shows a text as it is. The option's own default stays `None`, which means "not given".
                self._options[path].show_default = text
        super().format_help(ctx, formatter)


def _extra(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _parameter(path: str, field: FieldInfo, with_panel: bool) -> inspect.Parameter:
    """The parameter of a function from which Typer makes the option of a key."""
    extra, parts = _extra(field), list(_parts(field.annotation))
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    # Lists and words are texts whose grammar `RunConfig` knows.
    is_list = any(get_origin(part) is tuple for part in parts)
    kind: Any = str if is_list else next((part for part in parts if part in (bool, int, float, Path)), str)
    flag = extra.get("flag") or "--" + path.replace("_", "-")
    off = flag.replace("--", "--no-", 1)
    option = typer.Option(
        f"{flag}/{off}" if kind is bool else flag,
        metavar=extra.get("metavar") or "|".join(words) or None,
        help=str(field.description).partition("\n")[0],
        rich_help_panel=extra["panel"] if with_panel else None,
        autocompletion=_COMPLETED.get(path),
    )
    return keyword(path.replace(".", "_"), Annotated[kind | None, option])


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
    from adaptive_bench.config import keys

    for table, about in keys().items():
        if get_origin(about.annotation) is dict and key.startswith(f"{table}."):
            return [*table.split("."), key.removeprefix(f"{table}.")]
    return key.split(".")
