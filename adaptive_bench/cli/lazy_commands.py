"""Commands whose modules are imported when they are run: the help of the program names them all and needs none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from adaptive_bench.errors import UsageError

_PACKAGE = "adaptive_bench.cli"


@dataclass(frozen=True)
class Source:
    """Where a command is.

    Attributes:
        module: Of this package.
        name: Of its function there, or of a `typer.Typer` with commands of its own.
        summary: The first paragraph of its help.
        panel: Title that it stands below in the help of the program.
        cls: `module:class`, where it is no plain command.
    """

    module: str
    name: str
    summary: str
    panel: str
    cls: str = "strict:Command"
    settings: Mapping[str, Any] | None = None

    def load(self, called: str) -> TyperCommand | TyperGroup:
        """Import it and make the command of it."""
        found = getattr(import_module(f"{_PACKAGE}.{self.module}"), self.name)
        if isinstance(found, typer.Typer):
            made = typer.main.get_command(found)
        else:
            module, cls = self.cls.split(":")
            alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
            alone.command(
                called,
                cls=getattr(import_module(f"{_PACKAGE}.{module}"), cls),
                context_settings=dict(self.settings or {}),
            )(found)
            made = typer.main.get_command(alone)
        made.name = called
        return cast("TyperCommand | TyperGroup", made)


class _Commands(Mapping[str, Any]):
    """Commands by name; what is asked for is made once."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources, self._made = sources, dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._sources[name].load(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def lazy_group(sources: Mapping[str, Source], gone: Mapping[str, str] | None = None) -> type[TyperGroup]:
    """A group of commands that are imported when somebody asks for one of them.

    Args:
        gone: Names of earlier versions, with what to type instead.
    """

    class Lazy(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.commands = cast("Any", _Commands(sources))
            self._writes_help = False

        def list_commands(self, ctx: Any) -> list[str]:
            return list(sources)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if self._writes_help and cmd_name in sources:
                source = sources[cmd_name]
                return TyperCommand(cmd_name, help=source.summary, rich_help_panel=source.panel)
            if gone and cmd_name in gone:
                raise UsageError(f"There is no command {cmd_name!r} any more. Use `{gone[cmd_name]}`.")
            return super().get_command(ctx, cmd_name)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            self._writes_help = True
            try:
                super().format_help(ctx, formatter)
            finally:
                self._writes_help = False

    return Lazy
