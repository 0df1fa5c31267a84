"""`adaptive-bench list`: what there is to choose from."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from adaptive_bench import registry
from adaptive_bench.cli.completion import names_of
from adaptive_bench.cli.overheads import overhead_rows, overhead_texts
from adaptive_bench.cli.run_list import STATES, Wanted, runs_in, shown
from adaptive_bench.cli.source_facts import source_facts
from adaptive_bench.cli.tables import fitting, lines_of, listed
from adaptive_bench.cli.waiting import load_libraries
from adaptive_bench.errors import UsageError, one_line
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.runs import check_output, run_folders
from adaptive_bench.task import OpenTask, Task, TaskGroup, check_registered


class Listed(StrEnum):
    """What can be listed."""

    methods = "methods"
    tasks = "tasks"
    models = "models"
    families = "families"
    configs = "configs"
    runs = "runs"
    keys = "keys"


# What columns of JSON are called in a table.
_TITLES = {"description": "what it is", "origin": "from"}


def _names(ctx: typer.Context, incomplete: str) -> list[str]:
    what = ctx.params.get("what")
    return names_of(cast(registry.Group, str(what)))(incomplete) if str(what) in get_args(registry.Group) else []


def list_names(
    what: Annotated[Listed, typer.Argument(help=f"{', '.join(Listed)}.")],
    name: Annotated[
        str | None, typer.Argument(autocompletion=_names, help="One of them: all that is known of it.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Of methods also parameters, and a table of what each can do.")
    ] = False,
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
    out: Annotated[Path, typer.Option(readable=False, help="Folder of the runs to list.")] = Path("runs"),
    plugin: Annotated[list[Path] | None, typer.Option(help="Python file that registers more; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List methods, tasks, models, families, configs, runs or keys of a config, or say all of one.

    Of runs, the newest first; options choose by a part of the name. In JSON a number is a number, and what is not known
    or does not apply is null.
    """
    if plugin or (model is not None and what is Listed.methods):
        load_libraries()
    registry.load_plugins(plugin)
    of_runs = {"--task": task, "--method": method, "--status": state, "--since": since}
    if what is not Listed.runs and (given := [name for name, value in of_runs.items() if value is not None]):
        raise UsageError(f"{', '.join(given)} go with `list runs`, got `list {what}`. Leave them out.")
    if full and what is not Listed.methods:
        raise UsageError(f"--full goes with `list methods`, got `list {what}`. Leave it out.")
    rows = _rows(what, out, Wanted(model, task, method, state, since), methods)
    if name is not None:
        rows = _only(rows, what, name)
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False))
        return
    if not rows:
        are_left_out = what is Listed.runs and any(run_folders(out))
        typer.echo("There are no such runs." if are_left_out else f"There are no {what} yet.")
    elif what is Listed.runs:
        typer.echo(shown(rows))
    elif model is not None:
        typer.echo(fitting(overhead_texts(rows)))
    elif what is Listed.methods and name is None and not full:
        typer.echo(lines_of([(row["name"], row["description"]) for row in rows]))
        typer.echo("\n`adaptive-bench list methods NAME` says all of one, --full of all.")
    else:
        typer.echo(listed([{_TITLES.get(key, key): _text(key, value) for key, value in row.items()} for row in rows]))
        if what is Listed.methods:
            from adaptive_bench.cli.capability_table import capability_table

            typer.echo("\n" + capability_table([row["name"] for row in rows]))


def _rows(what: Listed, out: Path, wanted: Wanted, methods: str | None) -> Sequence[Mapping[str, Any]]:
    """The rows of a kind.

    Raises:
        UsageError: There is no such list of a model, or of methods on one.
    """
    if what is Listed.runs and methods is None:
        check_output(out)
        return runs_in(out, wanted)
    if wanted.model is not None or methods is not None:
        if what is not Listed.methods or wanted.model is None:
            given = {"--model": wanted.model, "--methods": methods}
            got = " and ".join(f"{option} {value}" for option, value in given.items() if value is not None)
            raise UsageError(
                f"--model goes with `list methods` and `list runs`, --methods with `list methods --model`, got "
                f"`list {what}` with {got}. Try `adaptive-bench list methods --model nano`, or --method of `list runs`."
            )
        return overhead_rows(wanted.model, methods)
    if what is Listed.keys:
        return _config_keys()
    return _registered(cast(registry.Group, what.value))


def _only(rows: Sequence[Mapping[str, Any]], what: Listed, name: str) -> list[Mapping[str, Any]]:
    """The row of one name, or those of a section of keys.

    Raises:
        UsageError: There is none.
    """
    key = {"runs": "run"}.get(what, "name" if "name" in rows[0] else "method") if rows else "name"
    if found := [row for row in rows if row[key] == name or (what is Listed.runs and Path(row[key]).name == name)]:
        return found
    if what is Listed.keys and (section := [row for row in rows if row[key].startswith(f"{name}.")]):
        return section
    hint = registry.did_you_mean(name, [row[key] for row in rows])
    raise UsageError(f"`list {what} NAME` takes one of `list {what}`, got {one_line(name, 60)!r}. {hint}")


def _registered(group: registry.Group) -> list[dict[str, Any]]:
    known = {name: source_facts(group, name) for name in registry.names(group)}
    if group in ("methods", "families") and not all(known.values()):
        load_libraries()
    return [
        {"name": name} | (facts or _facts(group, _thing(group, name))) | {"origin": registry.origin(group, name)}
        for name, facts in known.items()
    ]


def _facts(group: registry.Group, thing: Any) -> dict[str, Any]:
    return (
        {"description": _first_sentence(thing)}
        | ({"parameters": list(thing.Config.model_fields)} if group == "methods" else {})
        | (_about_task(thing) if group == "tasks" else {})
    )


def _config_keys() -> list[dict[str, Any]]:
    """Every key that has a value, for config files and `--set`, with the default of a file that does not name it."""
    from adaptive_bench.config import keys, part_of

    return [
        {
            "name": path,
            "description": str(field.description).replace("\n", " "),
            "required": field.is_required(),
            "default": None if field.is_required() else _plain(field.default),
        }
        for path, field in keys().items()
        if part_of(field) is None or field.description
    ]


def _plain(value: Any) -> Any:
    """As JSON has it."""
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value


def _thing(group: registry.Group, name: str) -> Any:
    if group == "configs":
        from adaptive_bench.config_file import preset_file

        return preset_file(name)
    if group == "tasks":
        return check_registered(name, registry.get(group, name), registry.origin(group, name))
    if group != "methods":
        return registry.get(group, name)
    from adaptive_bench.method import method_class

    return method_class(MethodSpec(name))


def _about_task(thing: Task | TaskGroup | OpenTask) -> dict[str, Any]:
    if isinstance(thing, TaskGroup):
        return {"kind": "group", "shots": None, "chance": None, "source": ", ".join(thing.members), "licence": None}
    if isinstance(thing, OpenTask):
        return {"kind": f"{thing.name}:DATA", "shots": 0, "chance": None, "source": "any", "licence": None}
    chance = thing.chance if math.isfinite(thing.chance) else None
    about = {"kind": thing.kind, "shots": thing.num_fewshot, "chance": chance}
    return about | {"source": thing.source, "licence": thing.licence}


def _first_sentence(thing: object) -> str:
    """The description a plugin gives of itself: a task's field, a preset's first comment, a docstring's first line."""
    if isinstance(thing, Path):
        return thing.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()
    description = getattr(thing, "description", None)
    return description if isinstance(description, str) else (inspect.getdoc(thing) or "").partition("\n")[0]


def _text(key: str, value: Any) -> str:
    if key == "default":  # as it is written in YAML
        value = json.dumps(value) if value in ([], {}, None) or isinstance(value, bool) else value
    if key == "required":
        return "yes" if value else ""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else f"{value:.2g}" if key == "chance" else str(value)
