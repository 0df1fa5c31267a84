"""`adaptive-bench list`: what there is to choose from."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from adaptive_bench import registry
from adaptive_bench.cli.failures import Debug
from adaptive_bench.cli.overheads import overhead_rows
from adaptive_bench.cli.quiet import quiet
from adaptive_bench.cli.run_list import STATES, Wanted, runs_in, shown
from adaptive_bench.cli.tables import fitting, listed
from adaptive_bench.cli.waiting import load_libraries
from adaptive_bench.errors import UsageError
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.runs import run_folders
from adaptive_bench.task import OpenTask, Task, TaskGroup


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
    model: Annotated[
        str | None,
        typer.Option(help="With methods: what each adds to this model, measured. With runs: those of this model."),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="With --model: these specs only, for example `gateskip[shape=scalar],calm`.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Runs with this task.")] = None,
    method: Annotated[str | None, typer.Option(help="Runs with this method.")] = None,
    state: Annotated[str | None, typer.Option("--status", metavar="|".join(STATES), help="Runs of this state.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DAY", help="Runs since this day, for example 2026-11-20.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs to list.")] = Path("runs"),
    plugin: Annotated[list[Path] | None, typer.Option(help="Python file that registers more; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    debug: Debug = False,
) -> None:
    """List methods, tasks, models, families of models, configs or runs.

    Of runs, the newest first; options choose by a part of the name.
    """
    if not debug:
        quiet()
    if plugin or what in (Listed.methods, Listed.families):
        load_libraries()
    registry.load_plugins(plugin)
    if what is not Listed.runs and (only := {"--task": task, "--method": method, "--status": state, "--since": since}):
        _refuse({name: value for name, value in only.items() if value is not None}, what)
    if what is Listed.runs and methods is None:
        rows = runs_in(out, Wanted(model, task, method, state, since))
    elif model is not None or methods is not None:
        _check_overhead(what, model)
        rows = overhead_rows(str(model), methods)
    else:
        rows = _registered(cast(registry.Group, what.value))
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False, default=str))
        return
    if not rows:
        typer.echo(f"There are no {what} yet." if what is not Listed.runs else _none(out))
    elif what is Listed.runs:
        typer.echo(shown(rows))
    else:
        texts = [{key: _text(value) for key, value in row.items()} for row in rows]
        typer.echo(listed(texts) if model is None else fitting(texts))
    if what is Listed.methods and model is None:
        from adaptive_bench.cli.capability_table import capability_table

        typer.echo("\n" + capability_table(registry.names("methods")))


def _check_overhead(what: Listed, model: str | None) -> None:
    if what is not Listed.methods or model is None:
        raise UsageError(
            f"--model goes with `list methods` and `list runs`, --methods with `list methods --model`, got "
            f"`list {what}` with --model {model}. Try `adaptive-bench list methods --model nano`."
        )


def _refuse(given: Mapping[str, str], what: Listed) -> None:
    if given:
        raise UsageError(f"{', '.join(given)} go with `list runs`, got `list {what}`. Leave them out.")


def _none(out: Path) -> str:
    return "There are no such runs." if any(run_folders(out)) else "There are no runs yet."


def _registered(group: registry.Group) -> list[dict[str, Any]]:
    return [
        {"name": name, "what it is": _first_sentence(thing)}
        | ({"parameters": list(thing.Config.model_fields)} if group == "methods" else {})
        | (_about_task(thing) if group == "tasks" else {})
        | {"from": registry.origin(group, name)}
        for name, thing in ((name, _thing(group, name)) for name in registry.names(group))
    ]


def _thing(group: registry.Group, name: str) -> Any:
    if group != "methods":
        return registry.get(group, name)
    from adaptive_bench.method import method_class

    return method_class(MethodSpec(name))


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


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
