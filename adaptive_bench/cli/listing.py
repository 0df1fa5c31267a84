"""`adaptive-bench list`: what there is to choose from."""

from __future__ import annotations

import inspect
import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, cast

import typer
import yaml

from adaptive_bench import registry
from adaptive_bench.cli.failures import Debug
from adaptive_bench.cli.overheads import overhead_rows
from adaptive_bench.cli.quiet import quiet
from adaptive_bench.errors import UsageError
from adaptive_bench.task import OpenTask, Task, TaskGroup

_TEXT_WIDTH, _NARROW = 44, 24  # columns of prose wrap, so that the table fits a terminal


class Listed(StrEnum):
    """What can be listed."""

    methods = "methods"
    tasks = "tasks"
    models = "models"
    families = "families"
    configs = "configs"
    runs = "runs"


def list_names(
    what: Annotated[Listed, typer.Argument(help="methods, tasks, models, families, configs or runs.")],
    model: Annotated[str | None, typer.Option(help="With methods: what each adds to this model, measured.")] = None,
    methods: Annotated[
        str | None, typer.Option(help="With --model: these specs only, for example `gateskip[shape=scalar],calm`.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs to list.")] = Path("runs"),
    plugin: Annotated[list[Path] | None, typer.Option(help="Python file that registers more; may be repeated.")] = None,
    debug: Debug = False,
) -> None:
    """List methods, tasks, models, families of models, configs or runs."""
    from tabulate import tabulate

    for path in plugin or []:
        registry.load_plugin(path)
    if model is not None or methods is not None:
        _check_overhead(what, model)
        if not debug:
            quiet()
        rows = overhead_rows(str(model), methods)
    else:
        rows = _runs(out) if what is Listed.runs else _registered(cast(registry.Group, what.value))
    describes_methods = what is Listed.methods and model is None
    widths = [None, _TEXT_WIDTH, _TEXT_WIDTH, None] if describes_methods else None
    if what is Listed.tasks:
        widths = [None, _TEXT_WIDTH, None, None, None, _NARROW, _NARROW, None]
    table = tabulate(rows, headers="keys", tablefmt="simple", maxcolwidths=widths)
    typer.echo(table if rows else f"There are no {what} yet.")
    if describes_methods:
        from adaptive_bench.cli.capability_table import capability_table

        typer.echo("\n" + capability_table(registry.names("methods")))


def _check_overhead(what: Listed, model: str | None) -> None:
    if what is not Listed.methods or model is None:
        raise UsageError(
            f"--model and --methods go with `list methods`, and --methods needs --model, got `list {what}` "
            f"with --model {model}. Try `adaptive-bench list methods --model nano`."
        )


def _registered(group: registry.Group) -> list[dict[str, str]]:
    things = {name: registry.get(group, name) for name in registry.names(group)}
    return [
        {"name": name, "what it is": _first_sentence(thing)}
        | ({"parameters": ", ".join(thing.Config.model_fields)} if group == "methods" else {})
        | (_about_task(thing) if group == "tasks" else {})
        | {"from": registry.origin(group, name)}
        for name, thing in things.items()
    ]


def _about_task(thing: Task | TaskGroup | OpenTask) -> dict[str, str]:
    if isinstance(thing, TaskGroup):
        return {"kind": "group", "shots": "", "chance": "", "source": ", ".join(thing.members), "licence": ""}
    if isinstance(thing, OpenTask):
        return {"kind": f"{thing.name}:DATA", "shots": "0", "chance": "", "source": "any", "licence": ""}
    about = {"kind": thing.kind, "shots": str(thing.num_fewshot), "chance": f"{thing.chance:.2g}"}
    return about | {"source": thing.source, "licence": thing.licence}


def _first_sentence(thing: object) -> str:
    """The description a plugin gives of itself: a task's field, a preset's first comment, a docstring's first line."""
    if isinstance(thing, Path):
        return thing.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()
    description = getattr(thing, "description", None)
    return description if isinstance(description, str) else (inspect.getdoc(thing) or "").partition("\n")[0]


def _runs(out: Path) -> list[dict[str, str]]:
    """Runs that were begun in a folder, the newest first."""
    found = []
    for config in sorted(out.rglob("config.yaml"), key=lambda path: path.stat().st_mtime, reverse=True):
        end = config.parent / "run.json"
        # Only the end of a run writes run.json; until then there is its config alone.
        about = (
            json.loads(end.read_text(encoding="utf-8")) if end.is_file() else yaml.safe_load(config.read_text("utf-8"))
        )
        found.append(
            {
                "run": str(config.parent),
                "state": about.get("state", "not finished"),
                "methods": ", ".join(about["methods"]),
                "tasks": ", ".join(about["tasks"]),
                "model": about["model"],
                "seeds": ", ".join(map(str, about["seeds"])),
                "finished": about.get("finished", ""),
            }
        )
    return found
