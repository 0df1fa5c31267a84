"""Every command of `adaptive-bench` but `lm-eval`, whose options are lm-eval's."""

import typer

from adaptive_bench.cli.program import app


def every_command(group=None, path=()):
    """Yields (("leaderboard", "build"), command) and so on."""
    group = group or typer.main.get_command(app)
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from every_command(command, (*path, name))
        elif name != "lm-eval":
            yield (*path, name), command


def params_of(command):
    """Its arguments and options, those that all commands have included."""
    return command.get_params(command.context_class(command, info_name=command.name))
