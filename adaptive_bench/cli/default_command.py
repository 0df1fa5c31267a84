"""A group of commands one of which need not be named: `leaderboard RUNS` is `leaderboard show RUNS`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


def group_with_default(name: str) -> type[TyperGroup]:
    """A group that runs the command `name` where its first argument is no command of the group."""

    class WithDefault(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            asks_help = bool(args) and args[0] in ctx.help_option_names
            if not asks_help and (not args or args[0] not in self.commands):
                args = [name, *args]
            return super().parse_args(ctx, args)

    return WithDefault
